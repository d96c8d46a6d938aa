package ecs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// ECS counts the calls of an action in fixed windows of one minute; once an
// account has used a window up, every further call is refused until the next
// window (ECS API, "API throttling"). It doesn't say when windows start.
const (
	window       = time.Minute
	firstBackoff = time.Second
	lastBackoff  = 16 * time.Second
)

// answerTime is what is kept of a caller's time for the answer: a call that
// can't be made before it is refused here, rather than cut off under way.
const answerTime = 2 * time.Second

// gate lets the calls of one action through, in the order in which they came
// and at most callsInFlight at a time. After a refusal everybody waits while
// one call at a time probes; each call that ECS accepts then lets two more
// through, so that a crowd can't use up a new window before the first refusal
// is back.
type gate struct {
	waited prometheus.Observer

	mu        sync.Mutex
	arrivals  int
	limited   bool      // ECS has refused a call, and not yet accepted enough since
	width     int       // calls that may be in flight while limited
	epoch     int       // grows with each refusal that counts
	inFlight  int       // calls of this epoch
	refusals  int       // in a row, in this minute
	notBefore time.Time // when the next probe may leave
	queue     []*turn
	alarm     *time.Timer
}

// turn is one caller's place in the queue.
type turn struct {
	arrival int
	granted chan int // gets the epoch
}

func newGate(waited prometheus.Observer) *gate { return &gate{waited: waited} }

// pass makes a call when ECS is likely to accept it, again and again as long
// as it is throttled and ctx leaves the time. Nothing else is retried. When
// the time runs out before a call was accepted, the error has Kind Throttled.
func (g *gate) pass(ctx context.Context, a action, call func() error) error {
	patient, cancel := patience(ctx)
	defer cancel()
	arrival := g.arrive()
	var refusal error
	for {
		epoch, err := g.enter(patient, arrival)
		if err != nil {
			return g.gaveUp(ctx, a, refusal, err)
		}
		err = call()
		g.leave(epoch, verdictOn(err))
		if err == nil || disk.KindOf(err) != disk.Throttled {
			return err
		}
		refusal = err
	}
}

// patience returns a context that ends in time to answer the caller.
func patience(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-margin(deadline)))
}

// margin is how long before its deadline a caller is answered.
func margin(deadline time.Time) time.Duration {
	return max(0, min(answerTime, time.Until(deadline)/4))
}

var errNoTime = errors.New("the caller's time ends before the next call may leave")

// gaveUp is the error of a call that waited for too long: for ECS, or for the
// calls before it.
func (g *gate) gaveUp(ctx context.Context, a action, refusal, why error) error {
	if ctx.Err() != nil {
		why = ctx.Err()
	}
	var last *disk.Error
	switch {
	case errors.As(refusal, &last):
		return &disk.Error{Op: a.name, Kind: disk.Throttled, RequestID: last.RequestID, Err: fmt.Errorf("%w (not tried again: %w)", last.Err, why)}
	case g.closed():
		return &disk.Error{Op: a.name, Kind: disk.Throttled, Err: fmt.Errorf("held back because ECS throttles %s: %w", a.name, why)}
	}
	return &disk.Error{Op: a.name, Kind: disk.Unreachable, Err: fmt.Errorf("not sent, for %d calls of %s are under way: %w", callsInFlight, a.name, why)}
}

type verdict int

const (
	accepted verdict = iota
	refused
	noAnswer // nothing can be said of the window
)

func verdictOn(err error) verdict {
	if err == nil {
		return accepted
	}
	switch disk.KindOf(err) {
	case disk.Throttled:
		return refused
	case disk.Unreachable, disk.UnknownOutcome, disk.Unauthenticated:
		return noAnswer
	}
	return accepted
}

func (g *gate) arrive() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.arrivals++
	return g.arrivals
}

// closed says whether calls are held back.
func (g *gate) closed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.limited
}

// enter waits until a call may leave, and returns the epoch to leave with.
func (g *gate) enter(ctx context.Context, arrival int) (int, error) {
	g.mu.Lock()
	if deadline, ok := ctx.Deadline(); ok && g.limited && deadline.Before(g.notBefore) {
		defer g.mu.Unlock()
		return 0, errNoTime
	}
	t := &turn{arrival: arrival, granted: make(chan int, 1)}
	at, _ := slices.BinarySearchFunc(g.queue, t, func(a, b *turn) int { return a.arrival - b.arrival })
	g.queue = slices.Insert(g.queue, at, t)
	if g.limited {
		began := time.Now()
		defer func() { g.waited.Observe(time.Since(began).Seconds()) }()
	}
	g.admit()
	g.mu.Unlock()

	select {
	case epoch := <-t.granted:
		return epoch, nil
	case <-ctx.Done():
		return 0, g.abandon(t, ctx.Err())
	}
}

// abandon takes a turn out of the queue, or hands it on if it was just granted.
func (g *gate) abandon(t *turn, why error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if at := slices.Index(g.queue, t); at >= 0 {
		g.queue = slices.Delete(g.queue, at, at+1)
		return why
	}
	if epoch := <-t.granted; epoch == g.epoch {
		g.inFlight--
		g.admit()
	}
	return why
}

// leave learns from what became of a call. A call that left before the last
// refusal says nothing new: a crowd that is refused together is one refusal.
func (g *gate) leave(epoch int, v verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if epoch != g.epoch {
		return
	}
	g.inFlight--
	switch {
	case v == refused:
		g.shut(time.Now())
	case v == accepted && g.limited:
		g.width++
		g.refusals = 0
		g.limited = len(g.queue) > 0 && g.width < callsInFlight
	}
	g.admit()
}

// shut holds everybody back until the next probe.
func (g *gate) shut(now time.Time) {
	g.limited = true
	g.epoch++
	g.width, g.inFlight = 1, 0
	g.refusals++
	backoff := min(lastBackoff, firstBackoff<<min(g.refusals-1, 10))
	g.notBefore = now.Add(backoff + rand.N(backoff/4))
	// The likeliest start of a window is that of a minute. Clusters that share
	// an account must not all come in its first instant.
	next := now.Truncate(window).Add(window + rand.N(firstBackoff/2))
	if next.Before(g.notBefore) {
		g.notBefore, g.refusals = next, 0
	}
}

// admit grants the turns that may leave now, and comes back when the next may.
func (g *gate) admit() {
	for len(g.queue) > 0 && g.inFlight < g.allowed() {
		if wait := time.Until(g.notBefore); g.limited && wait > 0 {
			if g.alarm != nil {
				g.alarm.Stop()
			}
			g.alarm = time.AfterFunc(wait, g.wake)
			return
		}
		g.inFlight++
		g.queue[0].granted <- g.epoch
		g.queue = g.queue[1:]
	}
}

// allowed is how many calls may be in flight.
func (g *gate) allowed() int {
	if g.limited {
		return g.width
	}
	return callsInFlight
}

func (g *gate) wake() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.admit()
}
