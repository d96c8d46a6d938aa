// Package ratelimit decides when the next call of one ECS action may be sent,
// from which calls ECS accepted and which it throttled. It makes no call itself.
//
// Its figures (TestClientsShareAnAccount, make bench WHAT=accounts): twenty drivers that
// share an account and know nothing of each other use at least 85 % of its limit,
// have at most 5 % of their calls throttled, and none of them waits for more than
// three times as long as most. A refusal that no limit is the cause of costs 5 000
// operations at most three seconds (TestAStrayRefusalCostsSeconds).
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
	action  string
	delayed func() (over func())

	mu       sync.Mutex
	arrivals int
	windows  windows
	queue    []*Turn
	timer    *time.Timer
}

// New returns a Limiter of the calls of one action, with at most concurrency
// in flight. delayed is called when a call begins to wait because of throttling,
// and what it returns when that is over.
func New(action string, concurrency int, delayed func() (over func())) *Limiter {
	return &Limiter{action: action, delayed: delayed, windows: windows{concurrency: concurrency}}
}

// Turn is the place of one call in the order in which calls came. The call keeps it for as long as ECS throttles it.
type Turn struct {
	limiter *Limiter
	arrival int
	granted chan stamp // gets an element when the call may be sent
	stamp   stamp
	sending bool  // the call may be sent, or was
	refusal error // of the last try
}

// Arrive gives a call its place. Then Wait and Done take turns until Done says that it was the last; Leave comes at the end, whatever it is.
func (l *Limiter) Arrive() *Turn {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.arrivals++
	return &Turn{limiter: l, arrival: l.arrivals, granted: make(chan stamp, 1)}
}

// Wait returns nil when ECS is likely to accept the call. When ctx ends before, the error has Kind Throttled, or
// Unreachable if other calls in flight were all that was waited for.
func (t *Turn) Wait(ctx context.Context) error {
	l := t.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	at, _ := slices.BinarySearchFunc(l.queue, t.arrival, func(other *Turn, arrival int) int { return other.arrival - arrival })
	if deadline, ok := ctx.Deadline(); ok && l.windows.delays(time.Now()) && deadline.Before(l.windows.earliest(at)) {
		return t.timedOut(fmt.Errorf("%w, at place %d of the queue", errNoTime, at+1))
	}
	l.queue = slices.Insert(l.queue, at, t)
	l.grant()
	if l.windows.delays(time.Now()) {
		defer l.delayed()()
	}
	l.mu.Unlock()
	var late error
	select {
	case t.stamp = <-t.granted:
	case <-ctx.Done():
		late = ctx.Err()
	}
	l.mu.Lock()
	if late == nil {
		t.sending = true
		return nil
	}
	if at := slices.Index(l.queue, t); at >= 0 {
		l.queue = slices.Delete(l.queue, at, at+1)
	} else { // it was granted just now
		t.stamp = <-t.granted
		t.end(notSent)
	}
	return t.timedOut(late)
}

// Done notes what became of the call, and says whether it is to be sent again, after Wait: its error has Kind Throttled. Nothing else is
// repeated.
func (t *Turn) Done(err error) (again bool) {
	t.limiter.mu.Lock()
	defer t.limiter.mu.Unlock()
	t.refusal = err
	t.end(verdictOn(err))
	return err != nil && disk.KindOf(err) == disk.Throttled
}

// Leave ends a call that has panicked. It does nothing after Done.
func (t *Turn) Leave() {
	t.limiter.mu.Lock()
	defer t.limiter.mu.Unlock()
	if t.sending {
		t.end(noAnswer)
	}
}

// end takes in what became of the call, and admits those that may be sent now.
func (t *Turn) end(v verdict) {
	t.sending = false
	t.limiter.windows.end(t.stamp, v, time.Now())
	t.limiter.grant()
}

var errNoTime = errors.New("the caller's time ends before the next call may be sent")

// timedOut is the error of a call that waited for too long: for ECS, or for the
// calls before it.
func (t *Turn) timedOut(why error) error {
	action, windows := t.limiter.action, &t.limiter.windows
	var last *disk.Error
	switch {
	case errors.As(t.refusal, &last):
		return &disk.Error{Op: action, Kind: disk.Throttled, RequestID: last.RequestID, Err: fmt.Errorf("%w (not tried again: %w)", last.Err, why)}
	case windows.closed || windows.share > 0:
		return &disk.Error{Op: action, Kind: disk.Throttled, Err: fmt.Errorf("held back because ECS throttles %s: %w", action, why)}
	}
	return &disk.Error{Op: action, Kind: disk.Unreachable, Err: fmt.Errorf("not sent, for %d calls of %s are under way: %w", windows.inFlight, action, why)}
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

// Throttled says whether calls are held back because ECS refuses them.
func (l *Limiter) Throttled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.windows.delays(time.Now())
}

// grant admits the calls that may be sent now, and sets the timer for the next.
func (l *Limiter) grant() {
	for len(l.queue) > 0 {
		now := time.Now()
		ok, at := l.windows.room(now)
		if !ok {
			l.wakeAt(at, now)
			return
		}
		l.queue[0].granted <- l.windows.send(now)
		l.queue = l.queue[1:]
	}
}

func (l *Limiter) wakeAt(at, now time.Time) {
	if l.timer != nil {
		l.timer.Stop()
	}
	if at.IsZero() {
		return
	}
	l.timer = time.AfterFunc(at.Sub(now), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.grant()
	})
}
