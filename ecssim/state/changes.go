package state

import (
	"context"
	"time"
)

// changes counts the changes of what there is.
type changes struct {
	n    int
	more chan struct{} // closed by the next one; nil if nobody waits for it
}

func (c *changes) count() {
	c.n++
	if c.more != nil {
		close(c.more)
		c.more = nil
	}
}

// next returns a channel that is closed by the next change.
func (c *changes) next() <-chan struct{} {
	if c.more == nil {
		c.more = make(chan struct{})
	}
	return c.more
}

// Wait is what ends a wait for a change.
type Wait struct {
	Changes       int
	due           time.Time // of the next change that comes of itself; zero if none does
	more, planned <-chan struct{}
}

// NextChange returns what ends a wait for a change from now on.
func (r *Region) NextChange() (w Wait) {
	w.Changes, w.more = r.changes.n, r.changes.next()
	w.due, w.planned = r.queue.next()
	return w
}

// End returns when something has changed, is due, or was planned, or when the clock was moved.
func (w Wait) End(ctx context.Context, c *Clock) error {
	now, moved := c.read()
	var due <-chan time.Time
	if !w.due.IsZero() {
		timer := time.NewTimer(w.due.Sub(now))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-due:
	case <-moved:
	case <-w.more:
	case <-w.planned:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
