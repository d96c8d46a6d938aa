// Package ratelimit decides when the next call of one ECS action may be sent,
// from which calls ECS accepted and which it throttled. It does no I/O: the
// calls are functions of its caller.
package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// ErrNotSent is in the error of a call that sent nothing to ECS. It counts for
// no limit.
var ErrNotSent = errors.New("not sent")

// ErrTooManyAtOnce is in the error of a call that ECS refused for the calls that
// were under way with it, and not for those of a window.
var ErrTooManyAtOnce = errors.New("too many calls at once")

// Limiter admits the calls of one action, in the order in which they came and
// only when ECS is likely to accept them: windows says when that is. After a
// refusal all calls wait while one at a time probes. Limiters in other processes
// that use the same account need not know of each other. It is safe for
// concurrent use.
type Limiter struct {
	action string
	waits  Waits

	mu       sync.Mutex
	arrivals int
	windows  windows
	epoch    int // grows each time the window is closed
	inFlight int // calls of this epoch
	queue    []*waiter
	timer    *time.Timer
}

// waiter is one call's position in the queue.
type waiter struct {
	arrival int
	granted chan permit
}

// permit allows one call.
type permit struct {
	epoch int
	stamp stamp
}

// Waits is told of each call that is delayed by throttling: when it begins to
// wait, and how long it has waited.
type Waits struct {
	Begun func()
	Ended func(time.Duration)
}

// New returns a Limiter of the calls of one action, with at most concurrency
// in flight.
func New(action string, concurrency int, waits Waits) *Limiter {
	return &Limiter{action: action, waits: waits, windows: windows{concurrency: concurrency}}
}

// Turn is the place of one call in the order in which calls came. The call keeps it for as long as ECS throttles it.
type Turn struct {
	limiter *Limiter
	arrival int
	permit  permit
	granted bool  // the call may be sent
	refusal error // of the last try
}

// Arrive gives a call its place. Then Wait and Done take turns until Done says that it was the last; Leave comes at the end, whatever it is.
func (l *Limiter) Arrive() *Turn { return &Turn{limiter: l, arrival: l.arrive()} }

// Wait returns nil when ECS is likely to accept the call. When ctx ends before, the error has Kind Throttled, or
// Unreachable if other calls in flight were all that was waited for.
func (t *Turn) Wait(ctx context.Context) (err error) {
	if t.permit, err = t.limiter.acquire(ctx, t.arrival); err != nil {
		return t.limiter.timedOut(t.refusal, err)
	}
	t.granted = true
	return nil
}

// Done notes what became of the call, and says whether it is to be sent again, after Wait: its error has Kind Throttled. Nothing else is
// repeated.
func (t *Turn) Done(err error) (again bool) {
	t.granted, t.refusal = false, err
	t.limiter.release(t.permit, verdictOn(err))
	return err != nil && disk.KindOf(err) == disk.Throttled
}

// Leave ends a call that has panicked. It does nothing after Done.
func (t *Turn) Leave() {
	if t.granted {
		t.limiter.release(t.permit, noAnswer)
	}
}

var errNoTime = errors.New("the caller's time ends before the next call may be sent")

// timedOut is the error of a call that waited for too long: for ECS, or for the
// calls before it.
func (l *Limiter) timedOut(refusal, why error) error {
	var last *disk.Error
	switch {
	case errors.As(refusal, &last):
		return &disk.Error{Op: l.action, Kind: disk.Throttled, RequestID: last.RequestID, Err: fmt.Errorf("%w (not tried again: %w)", last.Err, why)}
	case l.limited():
		return &disk.Error{Op: l.action, Kind: disk.Throttled, Err: fmt.Errorf("held back because ECS throttles %s: %w", l.action, why)}
	}
	return &disk.Error{Op: l.action, Kind: disk.Unreachable, Err: fmt.Errorf("not sent, for %d calls of %s are under way: %w", l.underWay(), l.action, why)}
}

type verdict int

const (
	accepted verdict = iota
	refused
	crowded  // refused for the calls beside it
	noAnswer // nothing can be said of the window
	notSent
)

func verdictOn(err error) verdict {
	switch {
	case err == nil:
		return accepted
	case errors.Is(err, ErrNotSent):
		return notSent
	}
	switch disk.KindOf(err) {
	case disk.Throttled:
		if errors.Is(err, ErrTooManyAtOnce) {
			return crowded
		}
		return refused
	case disk.Unreachable, disk.UnknownOutcome, disk.Unauthenticated:
		return noAnswer
	}
	return accepted
}

func (l *Limiter) arrive() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.arrivals++
	return l.arrivals
}

// Throttled says whether calls are held back because ECS refuses them.
func (l *Limiter) Throttled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.windows.delays(time.Now())
}

// limited says whether ECS is known to throttle the action.
func (l *Limiter) limited() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.windows.closed || l.windows.share > 0
}

// underWay is how many calls are in flight.
func (l *Limiter) underWay() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inFlight
}

// acquire waits until a call may be sent.
func (l *Limiter) acquire(ctx context.Context, arrival int) (permit, error) {
	l.mu.Lock()
	w := &waiter{arrival: arrival, granted: make(chan permit, 1)}
	at, _ := slices.BinarySearchFunc(l.queue, w, func(a, b *waiter) int { return a.arrival - b.arrival })
	if deadline, ok := ctx.Deadline(); ok && l.windows.delays(time.Now()) && deadline.Before(l.windows.earliest(at)) {
		defer l.mu.Unlock()
		return permit{}, fmt.Errorf("%w, at place %d of the queue", errNoTime, at+1)
	}
	l.queue = slices.Insert(l.queue, at, w)
	l.grant()
	if began := time.Now(); l.windows.delays(began) {
		l.waits.Begun()
		defer func() { l.waits.Ended(time.Since(began)) }()
	}
	l.mu.Unlock()

	select {
	case p := <-w.granted:
		return p, nil
	case <-ctx.Done():
		return permit{}, l.abandon(w, ctx.Err())
	}
}

// abandon takes a waiter out of the queue, or returns a permit that it was just
// granted.
func (l *Limiter) abandon(w *waiter, why error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := slices.Index(l.queue, w); at >= 0 {
		l.queue = slices.Delete(l.queue, at, at+1)
		return why
	}
	l.learn(<-w.granted, notSent)
	return why
}

// release ends a call.
func (l *Limiter) release(p permit, v verdict) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.learn(p, v)
}

// learn takes in what became of a call, and grants the permits that follow.
func (l *Limiter) learn(p permit, v verdict) {
	inFlight := l.inFlight
	if p.epoch == l.epoch {
		l.inFlight--
	}
	closed := l.windows.closed
	switch v {
	case accepted:
		l.windows.accept(p.stamp)
	case refused:
		l.windows.refuse(p.stamp, time.Now())
	case crowded:
		l.windows.refuseCrowd(p.stamp, time.Now(), inFlight)
	case notSent:
		l.windows.unsend(p.stamp)
	}
	l.nextEpoch(closed)
	l.grant()
}

// nextEpoch stops counting the calls of a window that has closed: those still
// in flight must not delay the probe for the next.
func (l *Limiter) nextEpoch(wasClosed bool) {
	if l.windows.closed && !wasClosed {
		l.epoch++
		l.inFlight = 0
	}
}

// grant admits the waiters whose calls may be sent now, and sets the timer for
// the next.
func (l *Limiter) grant() {
	for len(l.queue) > 0 {
		now := time.Now()
		closed := l.windows.closed
		ok, at := l.windows.room(now, l.inFlight)
		l.nextEpoch(closed)
		if !ok {
			l.wakeAt(at, now)
			return
		}
		l.inFlight++
		l.queue[0].granted <- permit{epoch: l.epoch, stamp: l.windows.send(now)}
		l.queue = l.queue[1:]
	}
}

func (l *Limiter) wakeAt(at, now time.Time) {
	if l.timer != nil {
		l.timer.Stop()
	}
	if !at.IsZero() {
		l.timer = time.AfterFunc(at.Sub(now), l.wake)
	}
}

func (l *Limiter) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.grant()
}
