package ecs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// answerTime is what is kept of a caller's time for the answer: a call that
// can't be made before it is refused here, rather than cut off under way.
const answerTime = 2 * time.Second

// gate lets the calls of one action through, in the order in which they came
// and only when ECS is likely to accept them: windows says when that is. After
// a refusal everybody waits while one call at a time probes.
type gate struct {
	waited prometheus.Observer

	mu       sync.Mutex
	arrivals int
	windows  windows
	epoch    int // grows each time the window shuts
	inFlight int // calls of this epoch
	queue    []*turn
	alarm    *time.Timer
}

// turn is one caller's place in the queue.
type turn struct {
	arrival int
	granted chan leave
}

// leave is the permission to make one call.
type leave struct {
	epoch int
	stamp stamp
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
		l, err := g.enter(patient, arrival)
		if err != nil {
			return g.gaveUp(ctx, a, refusal, err)
		}
		err = call()
		g.leave(l, verdictOn(err))
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
	case g.limited():
		return &disk.Error{Op: a.name, Kind: disk.Throttled, Err: fmt.Errorf("held back because ECS throttles %s: %w", a.name, why)}
	}
	return &disk.Error{Op: a.name, Kind: disk.Unreachable, Err: fmt.Errorf("not sent, for %d calls of %s are under way: %w", g.underWay(), a.name, why)}
}

type verdict int

const (
	accepted verdict = iota
	refused
	noAnswer // nothing can be said of the window
	notSent
)

func verdictOn(err error) verdict {
	switch {
	case err == nil:
		return accepted
	case errors.Is(err, errNotReady):
		return notSent
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
	return g.windows.shut
}

// limited says whether ECS is known to throttle the action.
func (g *gate) limited() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.windows.shut || g.windows.limit > 0
}

// underWay is how many calls are.
func (g *gate) underWay() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inFlight
}

// enter waits until a call may leave.
func (g *gate) enter(ctx context.Context, arrival int) (leave, error) {
	g.mu.Lock()
	t := &turn{arrival: arrival, granted: make(chan leave, 1)}
	at, _ := slices.BinarySearchFunc(g.queue, t, func(a, b *turn) int { return a.arrival - b.arrival })
	if deadline, ok := ctx.Deadline(); ok && g.windows.shut && deadline.Before(g.windows.earliest(at)) {
		defer g.mu.Unlock()
		return leave{}, fmt.Errorf("%w, at place %d of the queue", errNoTime, at+1)
	}
	g.queue = slices.Insert(g.queue, at, t)
	g.admit()
	if g.windows.shut {
		began := time.Now()
		defer func() { g.waited.Observe(time.Since(began).Seconds()) }()
	}
	g.mu.Unlock()

	select {
	case l := <-t.granted:
		return l, nil
	case <-ctx.Done():
		return leave{}, g.abandon(t, ctx.Err())
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
	g.back(<-t.granted, notSent)
	return why
}

// leave learns from what became of a call.
func (g *gate) leave(l leave, v verdict) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.back(l, v)
}

func (g *gate) back(l leave, v verdict) {
	if l.epoch == g.epoch {
		g.inFlight--
	}
	shut := g.windows.shut
	switch v {
	case accepted:
		g.windows.accept(l.stamp)
	case refused:
		g.windows.refuse(l.stamp, time.Now())
	case notSent:
		g.windows.unsend(l.stamp)
	}
	g.turnOver(shut)
	g.admit()
}

// turnOver leaves the calls of a window that has shut to themselves: those that
// are still in flight must not hold up the probe for the next.
func (g *gate) turnOver(wasShut bool) {
	if g.windows.shut && !wasShut {
		g.epoch++
		g.inFlight = 0
	}
}

// admit grants the turns that may leave now, and comes back when the next may.
func (g *gate) admit() {
	for len(g.queue) > 0 {
		now := time.Now()
		shut := g.windows.shut
		ok, at := g.windows.room(now, g.inFlight)
		g.turnOver(shut)
		if !ok {
			g.wakeAt(at, now)
			return
		}
		g.inFlight++
		g.queue[0].granted <- leave{epoch: g.epoch, stamp: g.windows.send(now)}
		g.queue = g.queue[1:]
	}
}

func (g *gate) wakeAt(at, now time.Time) {
	if g.alarm != nil {
		g.alarm.Stop()
	}
	if !at.IsZero() {
		g.alarm = time.AfterFunc(at.Sub(now), g.wake)
	}
}

func (g *gate) wake() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.admit()
}
