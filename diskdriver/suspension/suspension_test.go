package suspension

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		ctx, stop := context.WithCancel(t.Context())
		unwatched := w.Mark(ctx)
		go w.Run(ctx)
		time.Sleep(time.Minute)
		call := w.Mark(ctx)
		time.Sleep(time.Hour)
		for name, ctx := range map[string]context.Context{"running": call, "before Run": unwatched, "no mark": ctx} {
			if Happened(ctx) {
				t.Errorf("%s: a process that runs was suspended", name)
			}
		}
		stop()
		synctest.Wait()
	})
}

// A stopped process notes nothing. Which goroutine is the first to run afterwards is chance.
func TestHappenedWhoeverRunsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watch
		w.Beat(time.Now())
		before := w.Mark(t.Context())
		time.Sleep(longest + beat)
		unnoticed := w.Mark(t.Context())
		if !Happened(before) {
			t.Error("not noticed by a call that runs before the Watch")
		}
		w.Beat(time.Now())
		after := w.Mark(t.Context())
		for name, test := range map[string]struct {
			ctx  context.Context
			want bool
		}{"begun before": {before, true}, "begun after it, before the Watch ran": {unnoticed, false}, "begun after it": {after, false}} {
			if got := Happened(test.ctx); got != test.want {
				t.Errorf("a call %s: %v, want %v", name, got, test.want)
			}
		}
		time.Sleep(longest)
		w.Beat(time.Now())
		if Happened(after) {
			t.Errorf("%s without a beat is no suspension", longest)
		}
	})
}

// The monotonic clock stands still while the machine sleeps: only the wall clock shows it, which can be set as well.
func TestTheWallClockShowsASleepingMachine(t *testing.T) {
	for name, test := range map[string]struct {
		step time.Duration
		want bool
	}{"asleep, or set forward": {time.Hour, true}, "set back": {-time.Hour, false}, "set by little": {time.Second, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w Watch
				w.Beat(time.Now())
				before := w.Mark(t.Context())
				last := momentOf(time.Now())
				last.wall = last.wall.Add(-test.step)
				w.last.Store(&last)
				if got := Happened(before); got != test.want {
					t.Errorf("a call begun before: %v, want %v", got, test.want)
				}
				after := w.Mark(t.Context())
				for range 2 {
					w.Beat(time.Now())
					if Happened(after) || Happened(before) != test.want {
						t.Errorf("after a Beat: %v and %v, want %v and false", Happened(before), Happened(after), test.want)
					}
				}
			})
		})
	}
}
