package credentials

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// How a cache renews temporary keys: when three quarters of their time are over,
// and after a failure with exponential back-off. They count as valid until a
// little before their end, so that they don't expire during a call.
const (
	renewTimeout = 20 * time.Second
	firstBackoff = time.Second
	lastBackoff  = time.Minute
	longestSpare = 30 * time.Second
	minAge       = 10 * time.Second // younger keys are not renewed because ECS refuses them
)

// fetcher is a source of temporary keys.
type fetcher interface {
	// fetch returns new keys and for how long they are valid.
	fetch(ctx context.Context) (Keys, time.Duration, error)
}

// cache keeps temporary keys for all callers. It renews them early and once for
// all, while the old ones stay in use; they do so until their end if that fails.
type cache struct {
	source  fetcher
	metrics *metrics

	mu         sync.Mutex
	keys       Keys
	fetched    time.Time
	validUntil time.Time
	renewAt    time.Time
	renewal    chan struct{} // closed at the end of the renewal under way; nil if there is none
	failures   int           // in a row
	failure    error         // of the last renewal
}

func newCache(source fetcher, m *metrics) *cache { return &cache{source: source, metrics: m} }

// Get returns valid keys. It waits for a renewal only if there are none.
func (c *cache) Get(ctx context.Context) (Keys, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if ctx.Err() != nil {
			return Keys{}, &disk.Error{Kind: disk.Unreachable, Err: fmt.Errorf("no credentials in time: %w", ctx.Err())}
		}
		now := time.Now()
		if !now.Before(c.renewAt) {
			c.startRenewal()
		}
		switch {
		case now.Before(c.validUntil):
			return c.keys, nil
		case c.renewal == nil:
			return Keys{}, c.failure // of a moment ago
		}
		c.wait(ctx)
	}
}

// Renew returns other keys than those that ECS refused, if there are any.
func (c *cache) Renew(ctx context.Context, refused Keys) (Keys, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.keys == refused && c.renewal == nil {
		if time.Since(c.fetched) < minAge || time.Now().Before(c.renewAt) && c.failures > 0 {
			return Keys{}, false
		}
		c.startRenewal()
	}
	if c.renewal != nil {
		c.wait(ctx)
	}
	return c.keys, c.keys != refused && time.Now().Before(c.validUntil)
}

// wait releases the lock until the renewal under way or ctx has ended.
func (c *cache) wait(ctx context.Context) {
	renewal := c.renewal
	c.mu.Unlock()
	defer c.mu.Lock()
	select {
	case <-renewal:
	case <-ctx.Done():
	}
}

// startRenewal fetches new keys in the background, unless that is under way. No
// caller's context ends it.
func (c *cache) startRenewal() {
	if c.renewal != nil {
		return
	}
	c.renewal = make(chan struct{})
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), renewTimeout)
		defer cancel()
		keys, life, err := c.source.fetch(ctx)
		if err == nil && life <= 0 {
			err = &disk.Error{Kind: disk.Unauthenticated, Err: fmt.Errorf("the keys that were given out had ended %v before", (-life).Round(time.Second))}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if now := time.Now(); err != nil {
			c.failed(err, now)
		} else {
			c.renewed(keys, life, now)
		}
		close(c.renewal)
		c.renewal = nil
	}()
}

// renewed stores new keys.
func (c *cache) renewed(keys Keys, life time.Duration, now time.Time) {
	if c.failures > 0 {
		klog.InfoS("Credentials are renewed again", "source", c.metrics.source)
	}
	c.failures, c.failure = 0, nil
	c.keys, c.fetched = keys, now
	c.validUntil = now.Add(life - min(life/10, longestSpare))
	c.renewAt = now.Add(life * 3 / 4)
	c.metrics.renewed(c.validUntil)
}

// failed logs the first failure of a row.
func (c *cache) failed(err error, now time.Time) {
	switch {
	case c.failures > 0:
	case now.Before(c.validUntil):
		klog.ErrorS(err, "Credentials can't be renewed; the old ones stay in use", "source", c.metrics.source, "until", c.validUntil)
	default:
		klog.ErrorS(err, "There are no credentials", "source", c.metrics.source)
	}
	c.failure = err
	c.renewAt = now.Add(min(firstBackoff<<min(c.failures, 10), lastBackoff))
	c.failures++
	c.metrics.failed()
}
