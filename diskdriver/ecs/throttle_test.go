package ecs

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
)

// quota is an ECS that takes so many calls of an action in each window of a
// minute, and counts what it refuses.
type quota struct {
	next   http.RoundTripper
	action string
	calls  int           // per window
	start  time.Duration // of the windows, after the full minute

	mu      sync.Mutex
	used    map[int64]int
	refused map[int64]int
}

func newQuota(next http.RoundTripper, action string, calls int, start time.Duration) *quota {
	return &quota{next: next, action: action, calls: calls, start: start, used: map[int64]int{}, refused: map[int64]int{}}
}

func (q *quota) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("X-Acs-Action") != q.action {
		return q.next.RoundTrip(r)
	}
	q.mu.Lock()
	minute := time.Now().Add(-q.start).Unix() / 60
	full := q.used[minute] >= q.calls
	if full {
		q.refused[minute]++
	} else {
		q.used[minute]++
	}
	q.mu.Unlock()
	if full {
		time.Sleep(100 * time.Millisecond)
		return answerWith(r, 400, `{"Code":"Throttling.User","Message":"Request was denied due to user flow control.","RequestId":"R1"}`), nil
	}
	return q.next.RoundTrip(r)
}

// slow is what the simulators of these tests take for a call.
func slow(config *ecssim.Config) {
	config.Latency.API = map[string]time.Duration{"": 300 * time.Millisecond}
}

func TestACrowdGetsThroughTheWindowsWithFewRefusals(t *testing.T) {
	for _, start := range []time.Duration{0, 17 * time.Second} {
		t.Run(fmt.Sprint("windows start ", start, " after the minute"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const perWindow, want = 60, 200
				sim := newSim(t, slow)
				q := newQuota(sim, "CreateDisk", perWindow, start)
				c := newClient(t, Config{Transport: q})
				began := time.Now()
				manyDisks(t, c, want)
				if n := len(sim.Disks()); n != want {
					t.Errorf("%d disks, want %d", n, want)
				}
				// 60 in the first window, then 60, 60 and 20.
				if took, best := time.Since(began), 3*time.Minute+start; took > best+40*time.Second {
					t.Errorf("it took %v; the windows allow %v", took, best)
				}
				for minute, n := range q.refused {
					// A crowd of up to 100 is refused before anybody knows; later ones only by doubling.
					if first := minute == began.Add(-start).Unix()/60; n > 100 && first || n > perWindow && !first {
						t.Errorf("window %d: %d calls were refused", minute, n)
					}
				}
			})
		})
	}
}

func TestOneCallAtATimeProbesAClosedWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := newSim(t, slow)
		q := newQuota(sim, "DeleteDisk", 0, 0)
		c := newClient(t, Config{Transport: q})
		ctx, cancel := context.WithTimeout(t.Context(), 58*time.Second)
		defer cancel()
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { wantKind(t, c.Delete(ctx, "d-bp1a"), disk.Throttled) })
		}
		all.Wait()
		total := 0
		for _, n := range q.refused {
			total += n
		}
		if total > 100+8 {
			t.Errorf("%d calls were refused: the first 100, and then %d probes in a minute; want at most 8", total, total-100)
		}
	})
}

func TestThrottledIsSaidInTimeToAnswer(t *testing.T) {
	for _, limit := range []time.Duration{400 * time.Millisecond, 3 * time.Second, 30 * time.Second, 150 * time.Second} {
		for _, op := range operations {
			t.Run(fmt.Sprint(limit, " ", op.name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					sim, c := simulate(t, slow)
					if err := sim.AddFault(ecssim.Fault{Action: op.action, Do: ecssim.FaultThrottle, Code: "Throttling.Api"}); err != nil {
						t.Fatal(err)
					}
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					defer cancel()
					e := wantKind(t, op.do(ctx, c), disk.Throttled)
					if ctx.Err() != nil {
						t.Errorf("the answer %v came after the deadline", e)
					}
					// Who shares a read may leave just before the refusal of its call comes.
					if e.RequestID == "" && (op.mutates || op.name == "Check") {
						t.Errorf("error %v has no request ID", e)
					}
				})
			})
		}
	}
}

func TestWhoComesFirstGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := newSim(t, nil)
		q := newQuota(sim, "CreateDisk", 1, 0)
		c := newClient(t, Config{Transport: q})
		var order []string
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 5 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Second)
				name := fmt.Sprintf("vol-%d", i)
				if _, err := create(t.Context(), c, name); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, name)
			})
		}
		all.Wait()
		if got := fmt.Sprint(order); got != "[vol-0 vol-1 vol-2 vol-3 vol-4]" {
			t.Errorf("order is %s", got)
		}
	})
}

func TestAnActionThatIsThrottledHoldsNoOtherBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c := simulate(t, nil)
		if err := sim.AddFault(ecssim.Fault{Action: "CreateDisk", Do: ecssim.FaultThrottle, Count: 3}); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := create(t.Context(), c, "vol-1"); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		began := time.Now()
		if err := c.Delete(t.Context(), "d-bp1a"); err != nil {
			t.Error(err)
		}
		if err := c.Check(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("other actions took %v", took)
		}
		all.Wait()
		if n := sim.Count("CreateDisk", "Throttling"); n != 3 {
			t.Errorf("%d refusals, want 3", n)
		}
	})
}

func TestReadsThatAreThrottledGatherInOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c := simulate(t, slow)
		ids := manyDisks(t, c, 80)
		time.Sleep(10 * time.Second)
		before := sim.Count("DescribeDisks", "")
		if err := sim.AddFault(ecssim.Fault{Action: "DescribeDisks", Do: ecssim.FaultThrottle, Count: 10}); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for i, id := range ids {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				if _, err := c.Get(t.Context(), id); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := sim.Count("DescribeDisks", "") - before; n > 5 {
			t.Errorf("80 reads that came while reads were throttled took %d calls, want those under way and one more", n)
		}
	})
}

func TestWhoGivesUpHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c := simulate(t, slow)
		if err := sim.AddFault(ecssim.Fault{Action: "DeleteDisk", Do: ecssim.FaultThrottle, Count: 30}); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Second/2+time.Second)
				defer cancel()
				if i%5 == 0 {
					time.AfterFunc(time.Second, cancel)
				}
				err := c.Delete(ctx, "d-bp1a")
				switch disk.KindOf(err) {
				case disk.Throttled, disk.UnknownOutcome:
				case disk.Unreachable: // its time ended while others were under way, and ECS accepted calls again
				default:
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		for range 2 {
			if err := c.Delete(t.Context(), "d-bp1a"); err != nil {
				t.Errorf("after everybody left: %v", err)
			}
			time.Sleep(5 * time.Minute) // in which ECS refuses nothing
		}
		began := time.Now()
		if err := c.Delete(t.Context(), "d-bp1a"); err != nil || time.Since(began) > 10*time.Second || c.session.Throttled("DeleteDisk") {
			t.Errorf("calls are still held back: %v after %v", err, time.Since(began))
		}
	})
}

func TestClustersShareAnAccount(t *testing.T) {
	const clusters, perWindow, windows = 20, 300, 7
	for _, start := range []time.Duration{0, 37 * time.Second} {
		t.Run(fmt.Sprint("windows start ", start, " after the minute"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQuota(newSim(t, slow), "DeleteDisk", perWindow, start)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(windows*time.Minute+start, cancel)
				first := time.Now().Add(-start).Unix()/60 + 2 // nobody knows the limit before
				if start > 0 {
					first++
				}
				var all sync.WaitGroup
				for range clusters {
					c := newClient(t, Config{Transport: q})
					for range perWindow / clusters {
						all.Go(func() {
							for ctx.Err() == nil {
								_ = c.Delete(ctx, "d-bp1absent")
							}
						})
					}
				}
				all.Wait()
				used, refused := 0, 0
				for minute := first; minute < first+windows-2; minute++ {
					used, refused = used+q.used[minute], refused+q.refused[minute]
					if n := q.used[minute]; n < perWindow*85/100 {
						t.Errorf("window %d: %d of %d calls were used", minute-first, n, perWindow)
					}
				}
				if refused*20 > used+refused {
					t.Errorf("%d calls were accepted and %d throttled, want at most 5 %%", used, refused)
				}
			})
		})
	}
}
