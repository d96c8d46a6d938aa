package ecs

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/batch"
	"github.com/topodisk/topodisk/ecssim"
)

// ripening is an ECS whose disks are being made for so long after a client saw
// them first, with what else its changes need.
func ripening(t *testing.T, length time.Duration, n int) (*ecssim.Server, *Client, []disk.ID) {
	t.Helper()
	sim, c := simulate(t, func(config *ecssim.Config) {
		config.Latency.API = map[string]time.Duration{"DescribeDisks": 120 * time.Millisecond}
		config.Latency.Available = length
	})
	return sim, c, manyDisks(t, c, n)
}

func isAvailable(d disk.Disk) (bool, error) { return d.State == disk.Available, nil }

func TestWaitsShareReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 250
		sim, c, ids := ripening(t, 10*time.Second, n)
		began, before := time.Now(), calls(sim, "DescribeDisks")
		var all sync.WaitGroup
		for i := range 2 * n { // two for each disk
			all.Go(func() {
				d, err := c.Await(t.Context(), ids[i%n], isAvailable)
				if err != nil || d.State != disk.Available || d.ID != ids[i%n] {
					t.Errorf("disk %+v, error %v", d, err)
				}
			})
		}
		all.Wait()
		took := time.Since(began)
		if took > 12500*time.Millisecond {
			t.Errorf("it took %v to see what takes 10s", took)
		}
		// Three calls for all disks, further and further apart.
		if reads := calls(sim, "DescribeDisks") - before; reads > 3*24 {
			t.Errorf("%d waits made %d calls in %v", 2*n, reads, took)
		}
	})
}

func TestNobodyReadsWhileNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c, ids := ripening(t, time.Hour, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := c.Await(ctx, ids[0], isAvailable)
		if e := wantKind(t, err, disk.Pending); !strings.Contains(e.Error(), "Creating") {
			t.Errorf("error %v doesn't say what the disk was seen to be", e)
		}
		if ctx.Err() != nil {
			t.Error("the answer came after the deadline")
		}
		before := calls(sim, "DescribeDisks")
		time.Sleep(time.Hour)
		if n := calls(sim, "DescribeDisks") - before; n > 0 {
			t.Errorf("%d reads were made for nobody", n)
		}
	})
}

// What the client adds is little of what the change takes, once some have been seen.
func TestAChangeIsSeenAsSoonAsItIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const length, answer = 1500 * time.Millisecond, 120 * time.Millisecond
		sim, c, ids := ripening(t, 0, 1)
		var late []time.Duration
		before := 0
		for i := range 60 {
			if i == 20 {
				before = calls(sim, "DescribeDisks")
			}
			time.Sleep(time.Minute)
			began := time.Now()
			if _, err := c.reads.Await(t.Context(), batch.Change{Disk: ids[0], Kind: batch.Attach, Since: began}, overAfter(began, length+answer)); err != nil {
				t.Fatal(err)
			}
			late = append(late, time.Since(began)-length-answer)
		}
		late = late[20:]
		slices.Sort(late)
		if p50 := late[len(late)/2]; p50 < 0 || p50 > length/10 {
			t.Errorf("the client adds %v, want at most a tenth of %v; all: %v", p50, length, late)
		}
		if reads := calls(sim, "DescribeDisks") - before; reads > 120 {
			t.Errorf("40 changes took %d reads", reads)
		}
	})
}

// overAfter sees a change that is over when an answer that left in time says so.
func overAfter(began time.Time, length time.Duration) func(disk.Disk) (bool, error) {
	return func(disk.Disk) (bool, error) { return time.Since(began) >= length, nil }
}

func TestAFailedReadFailsNoWait(t *testing.T) {
	for _, fault := range []ecssim.Fault{
		{Do: ecssim.FaultThrottle, Code: "Throttling.User", Count: 3},
		{Do: ecssim.FaultError, Status: 500, Code: "InternalError", Count: 3},
		{Do: ecssim.FaultError, Status: 403, Code: "Forbidden.RAM", Count: 2},
		{Do: ecssim.FaultLostReply, Count: 3},
		{Do: ecssim.FaultHTML, Count: 3},
		{Do: ecssim.FaultEmpty, Count: 3},
	} {
		t.Run(fault.Do+fault.Code, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim, c, ids := ripening(t, 5*time.Second, 100)
				fault.Action = "DescribeDisks"
				if err := sim.AddFault(fault); err != nil {
					t.Fatal(err)
				}
				before := calls(sim, "DescribeDisks")
				var all sync.WaitGroup
				for _, id := range ids {
					all.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
						defer cancel()
						if _, err := c.Await(ctx, id, isAvailable); err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
				if n := calls(sim, "DescribeDisks") - before; n > 20 {
					t.Errorf("100 waits took %d calls", n)
				}
			})
		})
	}
}

func TestNoOddReplyFailsAWait(t *testing.T) {
	for _, kind := range ecssim.FaultKinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim, c, ids := ripening(t, 5*time.Second, 30)
				if err := sim.AddFault(ecssim.Fault{Action: "DescribeDisks", Do: kind, Count: 2, Lag: time.Second, DelayAfter: 3 * time.Second}); err != nil {
					t.Fatal(err)
				}
				var all sync.WaitGroup
				for _, id := range ids {
					all.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
						defer cancel()
						if d, err := c.Await(ctx, id, isAvailable); err != nil || d.State != disk.Available {
							t.Errorf("disk %+v, error %v", d, err)
						}
					})
				}
				all.Wait()
			})
		})
	}
}

func TestAReadThatECSRefusesForGoodEndsAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c, ids := ripening(t, time.Hour, 1)
		if err := sim.AddFault(ecssim.Fault{Action: "DescribeDisks", Do: ecssim.FaultError, Status: 403, Code: "Forbidden.RAM"}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err := c.Await(t.Context(), ids[0], isAvailable)
		if e := wantKind(t, err, disk.Denied); e.Disk != ids[0] || e.RequestID == "" {
			t.Errorf("error %+v names no disk or request", e)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestWhatWasNeverSeenIsNotPending(t *testing.T) {
	for want, fault := range map[disk.Kind]ecssim.Fault{
		disk.Unreachable: {Do: ecssim.FaultError, Status: 503, Code: "ServiceUnavailable"},
		disk.Throttled:   {Do: ecssim.FaultThrottle},
	} {
		synctest.Test(t, func(t *testing.T) {
			sim, c, ids := ripening(t, time.Hour, 1)
			time.Sleep(time.Second) // what the creation has read says nothing any more
			fault.Action = "DescribeDisks"
			if err := sim.AddFault(fault); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			_, err := c.Await(ctx, ids[0], isAvailable)
			wantKind(t, err, want)
			if ctx.Err() != nil {
				t.Errorf("the answer %v came after the deadline", err)
			}
		})
	}
}

func TestAnErrorOfTheWatcherEndsAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, ids := ripening(t, time.Hour, 1)
		want := disk.Errorf(disk.InUse, "another has it")
		d, err := c.Await(t.Context(), ids[0], func(disk.Disk) (bool, error) { return false, want })
		if !errors.Is(err, want) || d.ID != ids[0] {
			t.Errorf("got %+v, %v", d, err)
		}
	})
}

func TestADiskThatGoesAwayIsNotFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, ids := ripening(t, 0, 2)
		time.AfterFunc(5*time.Second, func() {
			if err := c.Delete(t.Context(), ids[0]); err != nil {
				t.Error(err)
			}
		})
		began := time.Now()
		_, err := c.Await(t.Context(), ids[0], func(disk.Disk) (bool, error) { return false, nil })
		if e := wantKind(t, err, disk.NotFound); e.Disk != ids[0] {
			t.Errorf("error %+v names no disk", e)
		}
		if took := time.Since(began); took < 8*time.Second || took > 12*time.Second {
			t.Errorf("the disk went after 5s and was missed after %v", took)
		}
	})
}

// blind is an ECS whose reads show nothing, as to an account without the
// permission to see disks.
func blind(sim *ecssim.Server) roundTrip {
	return func(r *http.Request) (*http.Response, error) {
		if r.Header.Get("X-Acs-Action") == "DescribeDisks" {
			return answerWith(r, 200, `{"RequestId":"R1","Disks":{"Disk":[]}}`), nil
		}
		return sim.RoundTrip(r)
	}
}

func TestNotFoundIsBelievedOnlyIfDisksAreShownAtAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := newSim(t, nil)
		c := newClient(t, Config{Transport: blind(sim)})
		_, err := c.Get(t.Context(), "d-bp1a")
		e := wantKind(t, err, disk.Denied)
		if !strings.Contains(e.Error(), "ecs:DescribeDisks") {
			t.Errorf("error %v doesn't name the permission", e)
		}
		_, err = c.Await(t.Context(), "d-bp1a", isAvailable)
		wantKind(t, err, disk.Denied)
		_, err = c.Named(t.Context(), "vol-1", false)
		wantKind(t, err, disk.Denied)
		_, err = create(t.Context(), c, "vol-1")
		wantKind(t, err, disk.UnknownOutcome)
		if n := len(sim.Disks()); n != 1 {
			t.Errorf("ECS has %d disks, want 1", n)
		}
	})
}

func TestWaitsAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		sim := newSim(t, func(config *ecssim.Config) { config.Latency.Available = time.Minute })
		c := newClient(t, Config{Transport: sim, Registerer: registry})
		ids := manyDisks(t, c, 3)
		var all sync.WaitGroup
		for _, id := range ids {
			all.Go(func() {
				if _, err := c.Await(t.Context(), id, isAvailable); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(10 * time.Second)
		if n, oldest := gauge(t, registry, "topodisk_ecs_pending_changes"), gauge(t, registry, "topodisk_ecs_oldest_pending_change_seconds"); n != 3 || oldest != 10 {
			t.Errorf("%v wait, the first for %v s; want 3 and 10", n, oldest)
		}
		all.Wait()
		if n, oldest := gauge(t, registry, "topodisk_ecs_pending_changes"), gauge(t, registry, "topodisk_ecs_oldest_pending_change_seconds"); n != 0 || oldest != 0 {
			t.Errorf("%v wait, the first for %v s; want none", n, oldest)
		}
	})
}

func TestOneAnswerThatLacksADiskProvesNothing(t *testing.T) {
	for _, fault := range []string{ecssim.FaultNothing, ecssim.FaultPartial, ecssim.FaultStale} {
		t.Run(fault, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim, c, ids := ripening(t, 0, 4)
				if fault == ecssim.FaultStale {
					ids = manyDisks(t, c, 2)
				}
				if err := sim.AddFault(ecssim.Fault{Action: "DescribeDisks", Do: fault, Count: 1, Lag: time.Second}); err != nil {
					t.Fatal(err)
				}
				var all sync.WaitGroup
				for _, id := range ids {
					all.Go(func() {
						if _, err := c.Get(t.Context(), id); disk.KindOf(err) == disk.NotFound {
							t.Error(err)
						}
					})
					all.Go(func() {
						if _, err := c.Await(t.Context(), id, isAvailable); err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
			})
		})
	}
}

func TestReadsThatLagHoldWaitsUpAndFailNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c := simulate(t, func(config *ecssim.Config) { config.Latency.Available = 5 * time.Second })
		if err := sim.AddFault(ecssim.Fault{Action: "DescribeDisks", Do: ecssim.FaultStale, Lag: 2 * time.Second}); err != nil {
			t.Fatal(err)
		}
		made, err := create(t.Context(), c, "vol-1")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Await(t.Context(), made.ID, isAvailable); err != nil {
			t.Error(err)
		}
	})
}

func TestAReadIsNotHeldUpByChangesThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, ids := ripening(t, 24*time.Hour, 90)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for _, id := range ids[1:] {
			all.Go(func() { _, _ = c.Await(ctx, id, isAvailable) })
		}
		time.Sleep(time.Hour)
		for range 20 {
			began := time.Now()
			if _, err := c.Get(t.Context(), ids[0]); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 120*time.Millisecond+110*time.Millisecond {
				t.Errorf("a read took %v beside 89 changes that hang", took)
			}
			time.Sleep(170 * time.Millisecond)
		}
		cancel()
		all.Wait()
	})
}
