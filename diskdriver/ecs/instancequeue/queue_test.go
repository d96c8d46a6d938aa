package instancequeue

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

// host is an instance of an ECS that does nothing else: it takes so many operations
// at a time, and refuses the others.
type host struct {
	id      disk.InstanceID
	limits  [3]int // by Limit; 0 is none
	latency time.Duration
	takes   [2]time.Duration

	mu      sync.Mutex
	busy    [2]int
	most    [2]int
	refused int
	order   []string
}

func newHost(attaches, detaches, all int) *host {
	return &host{id: "i-1", limits: [3]int{attaches, detaches, all}, latency: 500 * time.Millisecond, takes: [2]time.Duration{2 * time.Second, 4 * time.Second}}
}

// begin is the call: it says by which limit it is refused, if it is.
func (h *host) begin(j Verb, name string) (Limit, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, by := range []Limit{OfBoth, Limit(j)} {
		if h.limits[by] > 0 && total(by, h.busy) >= h.limits[by] {
			h.refused++
			return by, false
		}
	}
	h.busy[j]++
	h.most[j] = max(h.most[j], h.busy[j])
	h.order = append(h.order, name)
	return 0, true
}

func (h *host) end(j Verb) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.busy[j]--
}

// do runs one operation to its end.
func (h *host) do(ctx context.Context, s *Queues, j Verb, n int) error {
	name := fmt.Sprintf("%s%d", j, n)
	t, err := s.Enter(h.id, Operation{j, disk.ID(fmt.Sprintf("d-%d", n))})
	if err != nil {
		return err
	}
	for {
		if err := t.Wait(ctx); err != nil {
			return err
		}
		if !t.Start() {
			continue
		}
		by, ok := h.begin(j, name)
		time.Sleep(h.latency)
		if ok {
			break
		}
		t.Refused(by)
	}
	t.Accepted()
	time.Sleep(h.takes[j])
	h.end(j)
	t.Done()
	return nil
}

func wantPending(t *testing.T, err error) {
	t.Helper()
	if disk.KindOf(err) != disk.Pending {
		t.Errorf("error %v, want Pending", err)
	}
}

func wasSent(s *Slot) bool {
	_, ok := s.Sent()
	return ok
}

func testQueues() *Queues { return New(func(Verb, string, float64) {}) }

// all runs so many operations at once and returns how long they took.
func (h *host) all(t *testing.T, s *Queues, attaches, detaches int) time.Duration {
	t.Helper()
	began := time.Now()
	var wg sync.WaitGroup
	for j, n := range []int{attaches, detaches} {
		for i := range n {
			wg.Go(func() {
				if err := h.do(t.Context(), s, Verb(j), i); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	return time.Since(began)
}

func TestLimitsOfAnInstanceAreLearned(t *testing.T) {
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
				s := testQueues()
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

func TestLimitsHoldForTheNextInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := testQueues()
		newHost(0, 0, 1).all(t, s, 10, 0)
		other := newHost(0, 0, 1)
		began := time.Now()
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				slot, err := s.Enter("i-2", Operation{Attach, disk.ID(fmt.Sprintf("d-%d", i))})
				if err != nil {
					t.Error(err)
					return
				}
				for slot.Wait(t.Context()) == nil {
					if !slot.Start() {
						continue
					}
					if by, ok := other.begin(Attach, ""); !ok {
						slot.Refused(by)
						continue
					}
					slot.Accepted()
					time.Sleep(time.Second)
					other.end(Attach)
					slot.Done()
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

func TestALimitIsRaisedWhenECSTakesMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := testQueues(), newHost(0, 0, 1)
		h.all(t, s, 5, 0)
		h.mu.Lock()
		h.limits = [3]int{32, 5, 0}
		h.mu.Unlock()
		time.Sleep(2 * time.Minute)
		if h.all(t, s, 100, 0); h.most[Attach] < 16 {
			t.Errorf("at most %d attaches at a time, after ECS took 32 again", h.most[Attach])
		}
	})
}

// A try of more that did not get as far as the instance has told nothing.
func TestATryThatWasNotSentIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := testQueues(), newHost(0, 0, 1)
		h.all(t, s, 5, 0)
		time.Sleep(2 * time.Minute)
		begin := func(id disk.ID) *Slot {
			slot, err := s.Enter(h.id, Operation{Attach, id})
			if err != nil {
				t.Fatal(err)
			}
			return slot
		}
		begins := func(slot *Slot) bool { return slot.Wait(t.Context()) == nil && slot.Start() }
		first, more := begin("d-first"), begin("d-more")
		if !begins(first) {
			t.Fatal("the first does not begin")
		}
		first.Accepted()
		for range 3 {
			if !begins(more) {
				t.Fatal("one more is not tried")
			}
			more.Unsent()
		}
		more.Done()
		first.Done()
	})
}

func TestOperationsGoInOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := testQueues(), newHost(0, 0, 1)
		h.all(t, s, 2, 0) // learn that it is one at a time
		h.order = nil
		var wg sync.WaitGroup
		for i, j := range []Verb{Attach, Attach, Detach, Attach, Detach} {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 10 * time.Millisecond)
				if err := h.do(t.Context(), s, j, i); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		want := []string{"attach0", "attach1", "detach2", "attach3", "detach4"}
		if !slices.Equal(h.order, want) {
			t.Errorf("order is %v, want %v", h.order, want)
		}
	})
}

func TestAnEarlierPositionGoesBeforeAnUnsentCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := testQueues(), newHost(0, 0, 1)
		h.all(t, s, 2, 0)
		enter := func(o Operation) *Slot {
			slot, err := s.Enter(h.id, o)
			if err != nil {
				t.Fatal(err)
			}
			return slot
		}
		first, early, late := enter(Operation{Attach, "d-0"}), enter(Operation{Attach, "d-1"}), enter(Operation{Detach, "d-2"})
		if !first.Start() {
			t.Fatal("the first operation can't start")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantPending(t, early.Wait(ctx))
		first.Done()
		if err := late.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		early = enter(Operation{Attach, "d-1"})
		if late.Start() {
			t.Error("the later operation started before the earlier one, which has come back in the meantime")
		}
		if err := early.Wait(t.Context()); err != nil || !early.Start() {
			t.Errorf("the earlier operation can't start: %v", err)
		}
		early.Done()
		if err := late.Wait(t.Context()); err != nil || !late.Start() {
			t.Errorf("the later operation can't start after the earlier one: %v", err)
		}
		late.Done()
	})
}

func TestACallTooShortForTheQueueKeepsItsPosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := testQueues(), newHost(0, 0, 1)
		h.all(t, s, 3, 0)
		h.order = nil
		rpc := func(i int) error {
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			defer cancel()
			err := h.do(ctx, s, Attach, i)
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
					wantPending(t, err)
					if tries == 0 && !strings.Contains(err.Error(), "position ") {
						t.Errorf("error %q doesn't tell the position", err)
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

func TestAPositionIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := testQueues(), newHost(0, 0, 1)
		h.all(t, s, 3, 0)
		h.order = nil
		var wg sync.WaitGroup
		long := func(i int) { wg.Go(func() { _ = h.do(t.Context(), s, Attach, i) }); synctest.Wait() }
		for i := range 3 {
			long(i)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantPending(t, h.do(short, s, Attach, 3))
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

func TestASlotOutlivesItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := testQueues(), newHost(0, 0, 1)
		h.all(t, s, 3, 0)
		e := Operation{Attach, "d-slow"}
		first, _ := s.Enter("i-1", e)
		if !first.Start() {
			t.Fatal("no slot")
		}
		first.Accepted()
		first.Leave() // its RPC is over

		again, err := s.Enter("i-1", e)
		if err != nil || !wasSent(again) {
			t.Errorf("the same operation came back: %v, holds a slot: %v", err, wasSent(again))
		}
		if _, err := s.Enter("i-1", e); disk.KindOf(err) != disk.Pending {
			t.Errorf("a second caller of the same operation got %v, want pending", err)
		}
		again.Leave()
		next, _ := s.Enter("i-1", Operation{Attach, "d-next"})
		if next.Start() {
			t.Error("another operation got the slot at once")
		}
		if err := next.Wait(t.Context()); err != nil || !next.Start() {
			t.Errorf("another operation never gets the slot: %v", err)
		}
		next.Done()
	})
}

func TestAReadEndsASlotWithoutACaller(t *testing.T) {
	on := func(state disk.State, instances ...disk.InstanceID) disk.Disk {
		d := disk.Disk{ID: "d-1", State: state}
		for _, i := range instances {
			d.Attachments = append(d.Attachments, disk.Attachment{Instance: i})
		}
		return d
	}
	for name, test := range map[string]struct {
		verb Verb
		read disk.Disk
		over bool
	}{
		"attached":             {Attach, on(disk.Attached, "i-1"), true},
		"attaching":            {Attach, on(disk.Attaching, "i-1"), false},
		"not yet shown":        {Attach, on(disk.Available), false},
		"attached elsewhere":   {Attach, on(disk.Attached, "i-2"), false},
		"another disk":         {Attach, disk.Disk{ID: "d-2", State: disk.Attached}, false},
		"detached":             {Detach, on(disk.Available), true},
		"detached, elsewhere":  {Detach, on(disk.Attached, "i-2"), true},
		"detaching":            {Detach, on(disk.Detaching, "i-1"), false},
		"still attached":       {Detach, on(disk.Attached, "i-1"), false},
		"one of two instances": {Detach, on(disk.Attached, "i-1", "i-2"), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, h := testQueues(), newHost(0, 0, 1)
				h.all(t, s, 3, 0) // learn that it is one at a time
				left, _ := s.Enter("i-1", Operation{test.verb, "d-1"})
				if !left.Start() {
					t.Fatal("no slot")
				}
				left.Accepted()
				s.Observe(test.read) // its caller is still there, and sees for itself
				next, _ := s.Enter("i-1", Operation{Detach, "d-3"})
				if next.Start() {
					t.Fatal("a read took the slot from a caller")
				}
				time.Sleep(time.Minute)
				left.Leave()
				s.Observe(test.read)
				begin := time.Now()
				if err := next.Wait(t.Context()); err != nil || !next.Start() {
					t.Fatal(err)
				}
				if waited := time.Since(begin); test.over != (waited == 0) || waited > time.Minute {
					t.Errorf("the next operation waited %s", waited)
				}
				next.Done()
				if len(s.left) != 0 {
					t.Errorf("%d slots are still said to be left", len(s.left))
				}
			})
		})
	}
}

func TestABusyInstanceIsAskedLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := testQueues(), newHost(0, 0, 1)
		h.busy[Attach] = 1 // of somebody else
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		wantPending(t, h.do(ctx, s, Attach, 1))
		if h.refused > 12 {
			t.Errorf("%d calls in a minute", h.refused)
		}
	})
}

func TestQueuesOfIdleInstancesAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := testQueues()
		use := func(i int) {
			slot, err := s.Enter(disk.InstanceID(fmt.Sprintf("i-%d", i)), Operation{Attach, "d-1"})
			if err != nil || !slot.Start() {
				t.Fatal(err)
			}
			if i%2 == 0 {
				slot.Refused(OfAttaches) // nothing else runs: others are at work there
			}
			for slot.stage == waiting {
				_ = slot.Wait(t.Context())
				slot.Start()
			}
			slot.Accepted()
			slot.Done()
		}
		for i := range 100 {
			use(i)
		}
		if len(s.queues) > 0 {
			t.Errorf("%d instances are remembered, and nothing of them is worth it", len(s.queues))
		}
	})
}

func TestOneProbeSpeaksForAllInstances(t *testing.T) {
	for _, test := range []struct {
		name    string
		other   int // what the last of the instances takes, unlike the others
		refused int // by all of them, in 150 seconds
	}{
		{"all alike", 1, 10 + 2},
		{"one takes more", 5, 10 + 2 + 9 + 9}, // the others are asked for as many, and then each for itself
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := testQueues()
				var hosts []*host
				for i := range 10 {
					h := newHost(0, 0, 1)
					h.id = disk.InstanceID(fmt.Sprintf("i-%d", i))
					hosts = append(hosts, h)
				}
				hosts[9].limits[OfBoth] = test.other
				ctx, cancel := context.WithTimeout(t.Context(), 150*time.Second)
				defer cancel()
				var all sync.WaitGroup
				for _, h := range hosts {
					for i := range 2 {
						all.Go(func() {
							for n := i; h.do(ctx, s, Attach, n) == nil; n += 2 {
							}
						})
					}
				}
				all.Wait()
				refused := 0
				for _, h := range hosts {
					refused += h.refused
				}
				if refused > test.refused {
					t.Errorf("%d calls were refused, want at most %d", refused, test.refused)
				}
				if most := hosts[9].most[Attach]; most != min(test.other, 2) {
					t.Errorf("the last instance got %d at a time", most)
				}
			})
		})
	}
}
