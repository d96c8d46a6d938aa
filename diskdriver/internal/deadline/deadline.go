// Package deadline reserves a part of the caller's time for the answer.
package deadline

import (
	"context"
	"time"
)

// reserve is what is kept of a caller's time: a call that can't be made before is
// refused, rather than cut off under way.
const reserve = 2 * time.Second

// answerKey is the key of the time of AnswerBy.
type answerKey struct{}

// AnswerBy returns a context whose caller is to be answered at a time, if its deadline is later. Waits end then; a call of ECS that is
// under way has all of the caller's time, for an answer that is not awaited is an outcome that is not known.
func AnswerBy(ctx context.Context, at time.Time) context.Context {
	return context.WithValue(ctx, answerKey{}, at)
}

// BeforeAnswer returns a context that ends in time to answer the caller: 2 s before
// the deadline of ctx, or when three quarters of the time left are over if that is
// later; or at the time of AnswerBy if that is earlier.
func BeforeAnswer(ctx context.Context) (context.Context, context.CancelFunc) {
	end, ends := ctx.Deadline()
	if ends {
		end = end.Add(-max(0, min(reserve, time.Until(end)/4)))
	}
	if at, early := ctx.Value(answerKey{}).(time.Time); early && (!ends || at.Before(end)) {
		end, ends = at, true
	}
	if !ends {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, end)
}
