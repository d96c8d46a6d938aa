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
