package state

import (
	"context"
	"sort"
	"sync"
	"time"
)

// Clock is the time package's clock, moved forward by Advance.
type Clock struct {
	mu     sync.Mutex
	offset time.Duration
	moved  chan struct{} // closed and replaced by every Advance
}

// NewClock returns a clock that goes as the time package's.
func NewClock() *Clock { return &Clock{moved: make(chan struct{})} }

func (c *Clock) read() (time.Time, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.offset), c.moved
}

// Now returns the time.
func (c *Clock) Now() time.Time {
	now, _ := c.read()
	return now
}

// Advance moves the clock forward.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offset += d
	close(c.moved)
	c.moved = make(chan struct{})
}

// WaitUntil returns nil at the time t, or the error of ctx if that ends first.
func (c *Clock) WaitUntil(ctx context.Context, t time.Time) error {
	for {
		now, moved := c.read()
		left := t.Sub(now)
		if left <= 0 {
			return nil
		}
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-moved:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// queue holds what is still to happen, in the order of its time. Whoever
// looks at the state runs what is due first, so that a request whose sender
// hung up takes effect all the same.
type queue struct {
	events  []event
	after   func(at time.Time) // called after each event
	planned chan struct{}      // closed by the next add; nil if nobody waits for it
}

type event struct {
	at time.Time
	do func()
}

// add puts do behind everything that is due at the same time or before.
func (q *queue) add(at time.Time, do func()) {
	i := sort.Search(len(q.events), func(i int) bool { return q.events[i].at.After(at) })
	q.events = append(q.events, event{})
	copy(q.events[i+1:], q.events[i:])
	q.events[i] = event{at, do}
	if q.planned != nil {
		close(q.planned)
		q.planned = nil
	}
}

// next returns when the first event is due, the zero time if there is none, and a
// channel that is closed when another is added.
func (q *queue) next() (time.Time, <-chan struct{}) {
	if q.planned == nil {
		q.planned = make(chan struct{})
	}
	if len(q.events) == 0 {
		return time.Time{}, q.planned
	}
	return q.events[0].at, q.planned
}

// run does what is due by now.
func (q *queue) run(now time.Time) {
	for len(q.events) > 0 && !q.events[0].at.After(now) {
		e := q.events[0]
		q.events[0] = event{} // what it refers to can go
		q.events = q.events[1:]
		e.do()
		if q.after != nil {
			q.after(e.at)
		}
	}
}
