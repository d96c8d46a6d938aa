package ecs

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// How a cache renews temporary keys: when three quarters of their time are over,
// and after a failure with growing pauses. They count as good until a little
// before their end, so that no call meets it.
const (
	renewTimeout    = 20 * time.Second
	firstRenewPause = time.Second
	lastRenewPause  = time.Minute
	longestSpare    = 30 * time.Second
	refusedPause    = 10 * time.Second // keys younger than this are not renewed because ECS refuses them
)

// fetcher is a source of temporary keys.
type fetcher interface {
	// fetch returns new keys and for how long they are good.
	fetch(ctx context.Context) (Keys, time.Duration, error)
}

// cache keeps temporary keys for all callers. It renews them early and once for
// all, while the old ones stay in use; they do so until their end if that fails.
type cache struct {
	source fetcher
	meter  *keyMeter

	mu       sync.Mutex
	keys     Keys
	fetched  time.Time
	good     time.Time     // the keys are, until then
	due      time.Time     // from then on they are to be renewed
	flight   chan struct{} // closed at the end of the renewal under way; nil if there is none
	failures int           // in a row
	failure  error         // of the last renewal
}

func newCache(source fetcher, meter *keyMeter) *cache { return &cache{source: source, meter: meter} }

// Get returns keys that are good. It waits for a renewal only if there are none.
func (c *cache) Get(ctx context.Context) (Keys, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if ctx.Err() != nil {
			return Keys{}, noKeysInTime(ctx)
		}
		now := time.Now()
		if !now.Before(c.due) {
			c.takeOff()
		}
		switch {
		case now.Before(c.good):
			return c.keys, nil
		case c.flight == nil:
			return Keys{}, c.failure // of a moment ago
		}
		c.wait(ctx)
	}
}

// renewed returns other keys than those that ECS refused, if there are any.
func (c *cache) renewed(ctx context.Context, refused Keys) (Keys, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keys == refused && c.flight == nil {
		if time.Since(c.fetched) < refusedPause || time.Now().Before(c.due) && c.failures > 0 {
			return Keys{}, false
		}
		c.takeOff()
	}
	if c.flight != nil {
		c.wait(ctx)
	}
	return c.keys, c.keys != refused && time.Now().Before(c.good)
}

// wait lets the lock go until the renewal under way has ended, or ctx has.
func (c *cache) wait(ctx context.Context) {
	flight := c.flight
	c.mu.Unlock()
	defer c.mu.Lock()
	select {
	case <-flight:
	case <-ctx.Done():
	}
}

// takeOff begins a renewal, unless one is under way. It belongs to no caller, so
// none takes it down.
func (c *cache) takeOff() {
	if c.flight != nil {
		return
	}
	c.flight = make(chan struct{})
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), renewTimeout)
		defer cancel()
		keys, life, err := c.source.fetch(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.land(keys, life, err)
		close(c.flight)
		c.flight = nil
	}()
}

// land takes down what a renewal brought.
func (c *cache) land(keys Keys, life time.Duration, err error) {
	now := time.Now()
	if err == nil && life <= 0 {
		err = &disk.Error{Kind: disk.Unauthenticated, Err: fmt.Errorf("the keys that were given out had ended %v before", (-life).Round(time.Second))}
	}
	if err != nil {
		c.failed(err, now)
		return
	}
	if c.failures > 0 {
		klog.InfoS("Credentials are renewed again", "source", c.meter.source)
	}
	c.failures, c.failure = 0, nil
	c.keys, c.fetched = keys, now
	c.good = now.Add(life - min(life/10, longestSpare))
	c.due = now.Add(life * 3 / 4)
	c.meter.renewed(c.good)
}

// failed logs the first failure of a row.
func (c *cache) failed(err error, now time.Time) {
	switch {
	case c.failures > 0:
	case now.Before(c.good):
		klog.ErrorS(err, "Credentials can't be renewed; the old ones stay in use", "source", c.meter.source, "until", c.good)
	default:
		klog.ErrorS(err, "There are no credentials", "source", c.meter.source)
	}
	c.failure = err
	c.due = now.Add(min(firstRenewPause<<min(c.failures, 10), lastRenewPause))
	c.failures++
	c.meter.failed()
}

func noKeysInTime(ctx context.Context) error {
	return &disk.Error{Kind: disk.Unreachable, Err: fmt.Errorf("no credentials in time: %w", ctx.Err())}
}
