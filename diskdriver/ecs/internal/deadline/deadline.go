// Package deadline keeps a part of a caller's time for the answer.
package deadline

import (
	"context"
	"time"
)

// reserve is what is kept of a caller's time: a call that can't be made before is
// refused, rather than cut off under way.
const reserve = 2 * time.Second

// BeforeAnswer returns a context that ends in time to answer the caller: 2 s before
// the deadline of ctx, or when three quarters of the time left are over if that is
// later.
func BeforeAnswer(ctx context.Context) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, end.Add(-max(0, min(reserve, time.Until(end)/4))))
}
