// Package sleep sleeps for as long as a context lasts.
package sleep

import (
	"context"
	"time"
)

// For returns nil after d, or the context's error as soon as ctx has ended.
func For(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
