// Package suspension informs calls that the process did not run for a while, as after SIGSTOP or with its machine paused.
// Another replica may have taken over meanwhile, so what a call was about to change in ECS may undo what that replica did.
package suspension

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	// beat is how often a Watch notes that the process runs.
	beat = time.Second

	// longest is for how long the process may not run unnoticed. A Lease with csi-lib-utils' defaults (15 s, renewed every
	// 5 s) is free 10 s after its holder was stopped at the earliest.
	longest = 5 * time.Second
)

// Watch notices suspensions of the process. The zero Watch notices none until Run is called.
type Watch struct {
	last atomic.Pointer[moment] // when the process was seen to run
	seen atomic.Int64           // suspensions
}

// Run watches until ctx ends, by a Beat a second.
func (w *Watch) Run(ctx context.Context) {
	w.Beat(time.Now())
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.Beat(time.Now())
		case <-ctx.Done():
			w.last.Store(nil)
			return
		}
	}
}

// Beat notes that the process runs.
func (w *Watch) Beat(now time.Time) {
	m := momentOf(now)
	w.seen.Store(w.count(m))
	w.last.Store(&m)
}

// count is how many suspensions there were, one that has not been noted yet included.
func (w *Watch) count(now moment) int64 {
	last, seen := w.last.Load(), w.seen.Load()
	if last != nil && now.since(*last) > longest {
		seen++ // twice during a Beat, which ends a call for nothing
	}
	return seen
}

// moment is a time by both clocks. The monotonic one stands still while the machine sleeps, and often while it is paused. The wall
// clock can be set, too: if it goes forward, that ends the calls of one Beat for nothing.
type moment struct{ monotonic, wall time.Time }

func momentOf(t time.Time) moment { return moment{monotonic: t, wall: t.Round(0)} }

// since is the time from an earlier moment, by the clock that says more.
func (m moment) since(earlier moment) time.Duration {
	return max(m.monotonic.Sub(earlier.monotonic), m.wall.Sub(earlier.wall))
}

type key struct{}

type began struct {
	watch *Watch
	count int64
}

// Mark returns the context of a call that begins now.
func (w *Watch) Mark(ctx context.Context) context.Context {
	return context.WithValue(ctx, key{}, began{w, w.count(momentOf(time.Now()))})
}

// Happened says whether the process was suspended since the call of ctx began. It is false for a context without a mark.
func Happened(ctx context.Context) bool {
	call, ok := ctx.Value(key{}).(began)
	return ok && call.watch.count(momentOf(time.Now())) != call.count
}
