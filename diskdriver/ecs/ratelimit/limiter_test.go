package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// callsInFlight is the concurrency of the limiters of these tests.
const callsInFlight = 100

// do makes a call as package transport does.
func do(ctx context.Context, l *Limiter, call func() error) error {
	turn := l.Arrive()
	defer turn.Leave()
	for {
		if err := turn.Wait(ctx); err != nil {
			return err
		}
		if err := call(); !turn.Done(err) {
			return err
		}
	}
}

// account is an ECS that takes so many calls in each window of a minute, or in
// each second, and counts what it refuses.
type account struct {
	limit   int
	phase   time.Duration // of the windows, after the full minute
	seconds bool          // a sixtieth of the limit is for each second
	latency time.Duration

	mu       sync.Mutex
	used     map[int64]int
	refused  map[int64]int
	accepted int
}

func newAccount(limit int, phase time.Duration) *account {
	return &account{limit: limit, phase: phase, latency: 500 * time.Millisecond, used: map[int64]int{}, refused: map[int64]int{}}
}

// call is one call of the account, by anybody.
func (a *account) call() error {
	ok := a.take()
	time.Sleep(a.latency)
	if !ok {
		return disk.Errorf(disk.Throttled, "throttled")
	}
	return nil
}

func (a *account) take() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, limit := time.Now().Add(-a.phase).Unix()/60, a.limit
	if a.seconds {
		now, limit = time.Now().Unix(), a.limit/60
	}
	if a.used[now] >= limit {
		a.refused[now]++
		return false
	}
	a.used[now]++
	a.accepted++
	return true
}

func (a *account) refusals() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, r := range a.refused {
		n += r
	}
	return n
}

// setLimit changes the limit, in the middle of a window too.
func (a *account) setLimit(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.limit = n
}

func testLimiter() *Limiter {
	return New("CreateDisk", callsInFlight, func() func() { return func() {} })
}

// crowd makes so many calls at once and returns how long they all took.
func crowd(t *testing.T, a *account, l *Limiter, n int) time.Duration {
	t.Helper()
	began := time.Now()
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if err := do(context.Background(), l, a.call); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	return time.Since(began)
}

func TestACrowdUsesEveryWindowUpAndHardlyACallIsRefused(t *testing.T) {
	for _, phase := range []time.Duration{0, 17 * time.Second, 47 * time.Second, 59500 * time.Millisecond} {
		for _, test := range []struct{ limit, calls, refused int }{
			{60, 1000, 2 * startConcurrency}, {600, 1000, 2 * startConcurrency}, {600, 5000, 50}, {6000, 5000, 0},
		} {
			t.Run(fmt.Sprintf("%d calls, %d a window, %v after the minute", test.calls, test.limit, phase), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a, l := newAccount(test.limit, phase), testLimiter()
					took := crowd(t, a, l, test.calls)
					if n := a.refusals(); n > test.refused {
						t.Errorf("%d calls were refused, want at most %d: %v", n, test.refused, a.refused)
					}
					// The first window began before the calls did, unless phase is 0.
					full := (test.calls - 1) / test.limit
					best := time.Duration(full)*time.Minute + a.latency
					if phase > 0 && full > 0 {
						best += phase - time.Minute
					}
					if slack := best/20 + 20*time.Second; took > best+slack && full > 0 {
						t.Errorf("it took %v; the windows allow %v", took, best)
					}
				})
			})
		}
	}
}

func TestBacklogEndsSoonAfterTheNextWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(600, 0)
		took := crowd(t, a, testLimiter(), 1000)
		if best := time.Minute + a.latency; took > best+best/20 {
			t.Errorf("it took %v, more than a twentieth over %v", took, best)
		}
	})
}

func TestALimitThatChangesIsFoundAgain(t *testing.T) {
	for _, test := range []struct {
		before, after, calls int
		within               time.Duration
	}{
		{600, 300, 2300, 8 * time.Minute}, // others take half; eight windows have room for 100 more, which learning may cost
		{300, 1200, 6000, 9 * time.Minute},
	} {
		t.Run(fmt.Sprint(test.before, " then ", test.after), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, l := newAccount(test.before, 0), testLimiter()
				crowd(t, a, l, 2*test.before)
				learning := a.refusals()
				a.setLimit(test.after)
				if took := crowd(t, a, l, test.calls); took > test.within {
					t.Errorf("%d calls took %v, want at most %v", test.calls, took, test.within)
				}
				if n := a.refusals() - learning; n > callsInFlight+2*startConcurrency {
					t.Errorf("%d calls were refused while the new limit was learned: %v", n, a.refused)
				}
			})
		})
	}
}

// setPhase lets the windows begin at another time, with a new one at once.
func (a *account) setPhase(phase time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.phase, a.used = phase, map[int64]int{}
}

func TestASilenceAfterRefusalsTeachesNothing(t *testing.T) {
	const limit, runs = 60, 20
	var refused int
	var took time.Duration
	for i := range runs {
		synctest.Test(t, func(t *testing.T) {
			a, l := newAccount(limit, time.Duration(i)*time.Minute/runs), testLimiter()
			ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
			defer cancel()
			var all sync.WaitGroup
			for range 2 * limit {
				all.Go(func() { _ = do(ctx, l, a.call) })
			}
			all.Wait()
			time.Sleep(200 * time.Second)
			before := a.refusals()
			took += crowd(t, a, l, 4*limit) / runs
			refused += a.refusals() - before
		})
	}
	if mean := float64(refused) / runs; mean > 30 || took > 6*time.Minute {
		t.Errorf("%d calls after it took %v, with %.1f refused, want at most 6m and 30", 4*limit, took, mean)
	}
}

func TestWindowsThatMoveAreFoundAmongOtherClients(t *testing.T) {
	const limit, clients, runs, minutes = 120, 4, 8, 10
	var calls atomic.Int64
	for i := range runs {
		synctest.Test(t, func(t *testing.T) {
			a, l := newAccount(limit, time.Duration(i)*time.Minute/runs), testLimiter()
			crowd(t, a, l, 5*limit)
			a.setPhase(a.phase + 5*time.Second)
			ctx, cancel := context.WithCancel(context.Background())
			began := time.Now()
			time.AfterFunc((6+minutes)*time.Minute, cancel)
			var all sync.WaitGroup
			for client := range clients {
				of := l
				if client > 0 {
					of = testLimiter()
				}
				for range limit {
					all.Go(func() {
						for ctx.Err() == nil {
							if do(ctx, of, a.call) == nil && client == 0 && time.Since(began) > 6*time.Minute {
								calls.Add(1)
							}
						}
					})
				}
			}
			all.Wait()
		})
	}
	if mean, least := float64(calls.Load())/runs, float64(limit*minutes/clients/2); mean < least {
		t.Errorf("the client that knew the windows before made %.0f calls in %d minutes, want at least half its part, %.0f", mean, minutes, least)
	}
}

func TestCallsThatTrickleInAreNotHeldToAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, l := newAccount(600, 0), testLimiter()
		a.seconds = true
		if took := crowd(t, a, l, 1000); took > 3*time.Minute {
			t.Errorf("1000 calls at ten a second took %v", took)
		}
	})
}

func TestACallThatIsNotSentCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, l := newAccount(10, 0), testLimiter()
		for range 50 {
			if err := do(context.Background(), l, func() error { return ErrNotSent }); !errors.Is(err, ErrNotSent) {
				t.Fatal(err)
			}
		}
		if crowd(t, a, l, 10); l.windows.accepted != 10 || l.windows.inFlight != 0 {
			t.Errorf("%d calls are counted, and %d in flight, after 10 that were sent", l.windows.accepted, l.windows.inFlight)
		}
	})
}

func TestAPanicOfACallLeaksNoPermit(t *testing.T) {
	l := testLimiter()
	for range 3 {
		func() {
			defer func() { _ = recover() }()
			_ = do(t.Context(), l, func() error { panic("odd") })
		}()
	}
	if n := l.windows.inFlight; n > 0 {
		t.Errorf("%d calls are said to be in flight, and none is", n)
	}
}

// Without a monotonic reading a time would be compared by the wall clock, and calls wait for as long as that is set back.
func TestAWallClockSetBackDelaysNoCall(t *testing.T) {
	const limit = 60
	w, used, began := windows{concurrency: 1}, map[int64]int{}, time.Now()
	for now := began; now.Sub(began) < 5*time.Minute; now = now.Add(100 * time.Millisecond) {
		if ok, _ := w.room(now); ok {
			s, minute, v := w.send(now), now.Unix()/60, accepted
			if used[minute]++; used[minute] > limit {
				v = refused
			}
			w.end(s, v, now)
		}
		for name, at := range map[string]time.Time{"opens": w.opens, "filled": w.filled, "since": w.since, "notBefore": w.notBefore} {
			if !at.IsZero() && !strings.Contains(at.String(), " m=") {
				t.Fatalf("after %v %s has no monotonic reading: %v", now.Sub(began), name, at)
			}
		}
	}
}

func TestAHopelessWaitEndsAtOnceWithItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, l := newAccount(10, 0), testLimiter()
		var all sync.WaitGroup
		for range 60 {
			all.Go(func() { _ = do(context.Background(), l, a.call) })
		}
		time.Sleep(75 * time.Second) // the second window is used up, too
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
		defer cancel()
		began := time.Now()
		if err := do(ctx, l, a.call); disk.KindOf(err) != disk.Throttled || time.Since(began) > 0 {
			t.Errorf("error %v after %v, want kind %v at once", err, time.Since(began), disk.Throttled)
		}
		all.Wait()
	})
}
