package deadline

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestBeforeAnswer(t *testing.T) {
	for name, test := range map[string]struct{ left, want time.Duration }{
		"much time":   {time.Minute, 58 * time.Second},
		"little time": {4 * time.Second, 3 * time.Second},
		"none":        {-time.Second, -time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), test.left)
				defer cancel()
				limited, stop := BeforeAnswer(ctx)
				defer stop()
				if end, ok := limited.Deadline(); !ok || time.Until(end) != test.want {
					t.Errorf("%v are left, want %v", time.Until(end), test.want)
				}
			})
		})
	}
	limited, stop := BeforeAnswer(t.Context())
	if _, ok := limited.Deadline(); ok {
		t.Error("a caller without a deadline got one")
	}
	if stop(); limited.Err() == nil {
		t.Error("the context goes on after it was cancelled")
	}
}

func TestAnswerBy(t *testing.T) {
	for name, test := range map[string]struct{ left, answer, want time.Duration }{
		"earlier than the reserve": {time.Minute, 20 * time.Second, 20 * time.Second},
		"later than the reserve":   {time.Minute, 59 * time.Second, 58 * time.Second},
		"without a deadline":       {0, 20 * time.Second, 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				if test.left > 0 {
					ctx, cancel = context.WithTimeout(t.Context(), test.left)
				}
				defer cancel()
				ctx = AnswerBy(ctx, time.Now().Add(test.answer))
				limited, stop := BeforeAnswer(ctx)
				defer stop()
				<-limited.Done()
				if left, ends := ctx.Deadline(); ctx.Err() != nil || ends && time.Until(left) != test.left-test.want {
					t.Errorf("what is under way was cut off: %v", ctx.Err())
				}
				again, stopAgain := BeforeAnswer(ctx)
				defer stopAgain()
				if end, _ := again.Deadline(); test.want == test.answer && time.Until(end) > 0 {
					t.Errorf("the wait ended, and another one has %v", time.Until(end))
				}
			})
		})
	}
}
