package ecs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// host is an instance of an ECS that does nothing else: it takes so many jobs
// at a time, and refuses the others.
type host struct {
	limits  [3]int // by limitedBy; 0 is none
	latency time.Duration
	takes   [2]time.Duration

	mu      sync.Mutex
	busy    [2]int
	widest  [2]int
	refused int
	order   []string
}

func newHost(attaches, detaches, all int) *host {
	return &host{limits: [3]int{attaches, detaches, all}, latency: 500 * time.Millisecond, takes: [2]time.Duration{2 * time.Second, 4 * time.Second}}
}

// begin is the call: it says by which limit it is refused, if it is.
func (h *host) begin(j job, name string) (limitedBy, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, by := range []limitedBy{byAll, limitedBy(j)} {
		if h.limits[by] > 0 && count(by, h.busy) >= h.limits[by] {
			h.refused++
			return by, false
		}
	}
	h.busy[j]++
	h.widest[j] = max(h.widest[j], h.busy[j])
	h.order = append(h.order, name)
	return 0, true
}

func (h *host) end(j job) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.busy[j]--
}

// do runs one errand to its end.
func (h *host) do(ctx context.Context, s *slots, j job, n int) error {
	name := fmt.Sprint(jobNames[j], n)
	t, err := s.enter("i-1", errand{j, disk.ID(fmt.Sprintf("d-%d", n))})
	if err != nil {
		return err
	}
	for {
		if err := t.wait(ctx); err != nil {
			return err
		}
		if !t.start() {
			continue
		}
		by, ok := h.begin(j, name)
		time.Sleep(h.latency)
		if ok {
			break
		}
		t.refused(by)
	}
	t.accepted()
	time.Sleep(h.takes[j])
	h.end(j)
	t.done()
	return nil
}

func testSlots() *slots { return newSlots(newSlotMeter()) }

// all runs so many errands at once and returns how long they took.
func (h *host) all(t *testing.T, s *slots, attaches, detaches int) time.Duration {
	t.Helper()
	began := time.Now()
	var wg sync.WaitGroup
	for j, n := range []int{attaches, detaches} {
		for i := range n {
			wg.Go(func() {
				if err := h.do(t.Context(), s, job(j), i); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	return time.Since(began)
}

func TestSlotsFindTheWidthOfAnInstance(t *testing.T) {
	for _, test := range []struct {
		name               string
		host               *host
		attaches, detaches int
		within             time.Duration
		refused            int
	}{
		{"parallel attaches", newHost(32, 5, 0), 64, 0, 5 * time.Second, 0},
		{"parallel detaches", newHost(32, 5, 0), 0, 20, 18 * time.Second, 0},
		{"both in parallel", newHost(32, 5, 0), 64, 20, 18 * time.Second, 0},
		{"one at a time", newHost(0, 0, 1), 28, 0, 28 * 2500 * time.Millisecond, 27 + 2},
		{"one of either at a time", newHost(0, 0, 1), 14, 14, 14 * 7 * time.Second, 27 + 3},
		{"fewer than usual", newHost(7, 2, 0), 28, 8, 18 * time.Second, 21 + 3 + 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := testSlots()
				if took := test.host.all(t, s, test.attaches, test.detaches); took > test.within {
					t.Errorf("it took %v, want at most %v", took, test.within)
				}
				if test.host.refused > test.refused {
					t.Errorf("%d calls were refused, want at most %d", test.host.refused, test.refused)
				}
			})
		})
	}
}

func TestWhatOneInstanceTeachesHoldsForTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := testSlots()
		newHost(0, 0, 1).all(t, s, 10, 0)
		other := newHost(0, 0, 1)
		began := time.Now()
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				tick, err := s.enter("i-2", errand{attaching, disk.ID(fmt.Sprintf("d-%d", i))})
				if err != nil {
					t.Error(err)
					return
				}
				for tick.wait(t.Context()) == nil {
					if !tick.start() {
						continue
					}
					if by, ok := other.begin(attaching, ""); !ok {
						tick.refused(by)
						continue
					}
					tick.accepted()
					time.Sleep(time.Second)
					other.end(attaching)
					tick.done()
					return
				}
			})
		}
		wg.Wait()
		if other.refused > 1 || time.Since(began) > 11*time.Second {
			t.Errorf("%d calls were refused in %v; the limit was known", other.refused, time.Since(began))
		}
	})
}

func TestAWidthGrowsAgainWhenECSTakesMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := testSlots(), newHost(0, 0, 1)
		h.all(t, s, 5, 0)
		h.mu.Lock()
		h.limits = [3]int{32, 5, 0}
		h.mu.Unlock()
		time.Sleep(2 * time.Minute)
		if h.all(t, s, 100, 0); h.widest[attaching] < 16 {
			t.Errorf("at most %d attaches at a time, after ECS took 32 again", h.widest[attaching])
		}
	})
}

func TestDetachesGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := testSlots(), newHost(0, 0, 1)
		h.all(t, s, 2, 0) // learn that it is one at a time
		h.order = nil
		var wg sync.WaitGroup
		for i, j := range []job{attaching, attaching, attaching, detaching, detaching} {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 10 * time.Millisecond)
				if err := h.do(t.Context(), s, j, i); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		want := []string{"attach0", "detach3", "detach4", "attach1", "attach2"}
		if !slices.Equal(h.order, want) {
			t.Errorf("order is %v, want %v", h.order, want)
		}
	})
}

func TestADetachOvertakesAnAttachThatHasNotBeenSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := testSlots(), newHost(0, 0, 1)
		h.all(t, s, 2, 0)
		attach, err := s.enter("i-1", errand{attaching, "d-a"})
		if err != nil {
			t.Fatal(err)
		}
		if err := attach.wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		detach, err := s.enter("i-1", errand{detaching, "d-d"})
		if err != nil {
			t.Fatal(err)
		}
		if attach.start() {
			t.Error("the attach started before the detach, which has come in the meantime")
		}
		if err := detach.wait(t.Context()); err != nil || !detach.start() {
			t.Errorf("the detach can't start: %v", err)
		}
		detach.done()
		if err := attach.wait(t.Context()); err != nil || !attach.start() {
			t.Errorf("the attach can't start after the detach: %v", err)
		}
		attach.done()
	})
}

func TestACallTooShortForTheQueueKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := testSlots(), newHost(0, 0, 1)
		h.all(t, s, 3, 0)
		h.order = nil
		rpc := func(i int) error {
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			defer cancel()
			err := h.do(ctx, s, attaching, i)
			if ctx.Err() != nil {
				t.Errorf("disk %d ran into its deadline", i)
			}
			return err
		}
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond) // the order in which they first come
				for tries := 0; ; tries++ {
					err := rpc(i)
					if err == nil {
						return
					}
					wantKind(t, err, disk.Pending)
					if tries == 0 && !strings.Contains(err.Error(), "place ") {
						t.Errorf("error %q doesn't tell the place", err)
					}
					time.Sleep(time.Duration(12-i) * 500 * time.Millisecond) // who came last asks soonest
				}
			})
		}
		wg.Wait()
		if len(h.order) != 12 || h.refused > 3 { // to find out whether the instance takes more by now
			t.Errorf("%d of 12 disks were attached, and %d calls refused", len(h.order), h.refused)
		}
	})
}

func TestAPlaceIsKeptForWhoComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := testSlots(), newHost(0, 0, 1)
		h.all(t, s, 3, 0)
		h.order = nil
		var wg sync.WaitGroup
		long := func(i int) { wg.Go(func() { _ = h.do(t.Context(), s, attaching, i) }); synctest.Wait() }
		for i := range 3 {
			long(i)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantKind(t, h.do(short, s, attaching, 3), disk.Pending)
		for i := 4; i < 7; i++ {
			long(i)
		}
		long(3)
		wg.Wait()
		want := []string{"attach0", "attach1", "attach2", "attach3", "attach4", "attach5", "attach6"}
		if !slices.Equal(h.order, want) {
			t.Errorf("order is %v, want %v", h.order, want)
		}
	})
}

func TestASlotOutlivesItsCallerUntilECSIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := testSlots(), newHost(0, 0, 1)
		h.all(t, s, 3, 0)
		e := errand{attaching, "d-slow"}
		first, _ := s.enter("i-1", e)
		if !first.start() {
			t.Fatal("no slot")
		}
		first.accepted()
		first.leave() // its RPC is over

		again, err := s.enter("i-1", e)
		if err != nil || !again.holds() {
			t.Errorf("the same errand came back: %v, holds a slot: %v", err, again.holds())
		}
		if _, err := s.enter("i-1", e); disk.KindOf(err) != disk.Pending {
			t.Errorf("a second caller of the same errand got %v, want pending", err)
		}
		again.leave()
		next, _ := s.enter("i-1", errand{attaching, "d-next"})
		if next.start() {
			t.Error("another errand got the slot at once")
		}
		if err := next.wait(t.Context()); err != nil || !next.start() {
			t.Errorf("another errand never gets the slot: %v", err)
		}
		next.done()
	})
}

func TestAnInstanceThatOthersKeepBusyIsAskedEverLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := testSlots(), newHost(0, 0, 1)
		h.busy[attaching] = 1 // of somebody else
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		wantKind(t, h.do(ctx, s, attaching, 1), disk.Pending)
		if h.refused > 12 {
			t.Errorf("%d calls in a minute", h.refused)
		}
	})
}

func TestTheMapOfInstancesShrinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := testSlots()
		use := func(i int) {
			tick, err := s.enter(disk.InstanceID(fmt.Sprintf("i-%d", i)), errand{attaching, "d-1"})
			if err != nil || !tick.start() {
				t.Fatal(err)
			}
			if i%2 == 0 {
				tick.refused(byAttaches) // nothing else runs: others are at work there
			}
			if tick.phase == waiting {
				_ = tick.wait(t.Context())
				tick.start()
			}
			tick.accepted()
			tick.done()
		}
		for i := range 100 {
			use(i)
		}
		if len(s.lanes) > 0 {
			t.Errorf("%d instances are remembered, and nothing of them is worth it", len(s.lanes))
		}
	})
}
