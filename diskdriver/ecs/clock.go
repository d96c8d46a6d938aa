package ecs

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// clockHint is said with the refusal of a wrong time. ECS takes a call that was
// signed up to 15 minutes before or after its own time.
const clockHint = "this machine's clock differs from that of ECS by more than 15 minutes"

// hintOn returns what is said with an error code whose cause lies on this side,
// or "". The reply's own time tells how wrong this machine's clock is.
func hintOn(code string, header http.Header) string {
	hint := hints[code]
	if hint != clockHint {
		return hint
	}
	theirs, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return hint
	}
	ahead := time.Since(theirs).Round(time.Second)
	switch {
	case ahead > 0:
		return fmt.Sprintf("%s: it is %v fast", hint, ahead)
	case ahead < 0:
		return fmt.Sprintf("%s: it is %v slow", hint, -ahead)
	}
	return hint
}

// answerTime is what is kept of a caller's time for the answer: a call that
// can't be made before it is refused here, rather than cut off under way.
const answerTime = 2 * time.Second

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
