package ecssim

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

// AwaitChange waits until there were more changes than those seen, and returns
// how many there were: disks, devices and whatever else has come, changed or
// gone, by a call or at its own time. It does nothing while nothing changes. The
// error is that of ctx.
func (s *Server) AwaitChange(ctx context.Context, seen int) (int, error) {
	for {
		w := s.wait()
		if w.changes > seen {
			return w.changes, nil
		}
		if err := w.end(ctx, s.clock); err != nil {
			return seen, err
		}
	}
}

// waitForChange is what ends a wait for a change.
type waitForChange struct {
	changes       int
	due           time.Time // of the next change that comes of itself; zero if none does
	more, planned <-chan struct{}
}

func (s *Server) wait() (w waitForChange) {
	s.look(func(time.Time) {
		w.changes, w.more = s.changes.n, s.changes.next()
		w.due, w.planned = s.queue.next()
	})
	return w
}

// end returns when something has changed, is due, or was planned, or when the clock was moved.
func (w waitForChange) end(ctx context.Context, c *clock) error {
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
