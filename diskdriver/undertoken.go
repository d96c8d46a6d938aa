package diskdriver

import (
	"context"
	"fmt"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// creation makes one thing of a name, once: a snapshot or a group of them.
// Client tokens see to it, in generations (disk.NewToken): a token outlives
// what it made, so a name that comes again needs the next one.
type creation[T any] struct {
	name string // what the history and the token go by
	// make asks ECS under a token, and waits. used says of an error that the
	// token has been used up: with other parameters, or for what is gone.
	make func(ctx context.Context, token disk.Token) (made T, used bool, err error)
	// find looks for what an earlier call made, and waits for it. None is no
	// error.
	find func(ctx context.Context) (made T, found bool, err error)
}

// run makes the thing, or finds the one that was made before.
func (c creation[T]) run(ctx context.Context, h *history) (T, error) {
	for {
		p := h.of(c.name)
		made, used, err := c.make(ctx, disk.NewToken(c.name, p.generation))
		if err == nil || !used && disk.KindOf(err) != disk.NotFound {
			return made, err
		}
		earlier, found, unread := c.find(ctx)
		switch {
		case unread != nil:
			return made, unread
		case found:
			return earlier, nil
		case !used:
			return made, err // what it was to be made from doesn't exist
		}
		if p.unseenSince.IsZero() {
			p.unseenSince = time.Now()
			h.keep(c.name, p)
		}
		if left := visibilityHorizon - time.Since(p.unseenSince); left > 0 {
			return made, disk.Errorf(disk.Pending, "it was made before, and ECS doesn't show it; if it doesn't within %s, a new one is made (%w)", left.Round(time.Second), err)
		}
		h.keep(c.name, p.next())
	}
}

// unread is the error of a search for what an earlier call may have made.
// Whatever its reason, the outcome of that call is not known.
func unread(err error) error {
	return &disk.Error{Kind: disk.UnknownOutcome, Err: fmt.Errorf("it may have been made before, and looking for it failed: %w", err)}
}
