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
	"github.com/topodisk/topodisk/diskdriver/ecs/batch"
	"github.com/topodisk/topodisk/diskdriver/suspension"
	"github.com/topodisk/topodisk/ecssim"
)

const (
	nodeA = "i-aaaa"
	nodeB = "i-bbbb"
)

// working returns a simulator with two instances and what ECS takes for its work.
func working(t *testing.T, change func(*ecssim.Config)) (*ecssim.Server, *Client) {
	t.Helper()
	return simulate(t, func(config *ecssim.Config) {
		config.Latency, _ = ecssim.Profile("real")
		config.Latency.Spread = 0 // times are compared
		for _, id := range []string{nodeA, nodeB} {
			config.Instances = append(config.Instances, ecssim.Instance{ID: id, Zone: zoneH, Type: "ecs.gn8is-8x.32xlarge"})
		}
		if change != nil {
			change(config)
		}
	})
}

// attach attaches a disk.
func attach(ctx context.Context, c *Client, instance disk.InstanceID, id disk.ID) (disk.Disk, error) {
	d, _, err := c.Attach(ctx, instance, id, false)
	return d, err
}

// detach detaches a disk.
func detach(ctx context.Context, c *Client, instance disk.InstanceID, id disk.ID) (disk.Disk, error) {
	d, _, err := c.Detach(ctx, instance, id)
	return d, err
}

// madeDisk makes a disk and waits until it can be attached.
func madeDisk(t *testing.T, c *Client, name string) disk.ID {
	t.Helper()
	made, err := create(t.Context(), c, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.settled(t.Context(), made.ID); err != nil {
		t.Fatal(err)
	}
	return made.ID
}

// attachedDisk makes a disk and attaches it.
func attachedDisk(t *testing.T, c *Client, name string, instance disk.InstanceID) disk.ID {
	t.Helper()
	id := madeDisk(t, c, name)
	if _, err := attach(t.Context(), c, instance, id); err != nil {
		t.Fatal(err)
	}
	return id
}

// inTime is a context of so long an RPC.
func inTime(t *testing.T, limit time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// healthy checks the simulator's invariants.
func healthy(t *testing.T, sim *ecssim.Server) {
	t.Helper()
	if err := sim.Check(); err != nil {
		t.Error(err)
	}
}

// phaseOf returns how a disk is tied to an instance, and "" if it isn't.
func phaseOf(sim *ecssim.Server, id disk.ID, instance string) string {
	for _, d := range sim.Disks() {
		for _, a := range d.Attachments {
			if d.ID == string(id) && a.Instance == instance {
				return a.Phase
			}
		}
	}
	return ""
}

func TestANewDiskIsAttachedWithoutACallInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c := working(t, nil)
		made, err := create(t.Context(), c, "vol-1")
		if err != nil {
			t.Fatal(err)
		}
		d, err := attach(t.Context(), c, nodeA, made.ID)
		if err != nil {
			t.Fatal(err)
		}
		if d.Serial == "" || !d.On(nodeA) || phaseOf(sim, d.ID, nodeA) != "In_use" {
			t.Errorf("attached disk is %+v, %s in truth", d, phaseOf(sim, d.ID, nodeA))
		}
		if _, err := detach(t.Context(), c, nodeA, d.ID); err != nil {
			t.Fatal(err)
		}
		if phase := phaseOf(sim, d.ID, nodeA); phase != "" {
			t.Errorf("after the detach the disk is %s", phase)
		}
		if err := c.Delete(t.Context(), d.ID); err != nil {
			t.Fatal(err)
		}
		for _, action := range []string{"CreateDisk", "AttachDisk", "DetachDisk", "DeleteDisk"} {
			if n := calls(sim, action); n != 1 {
				t.Errorf("%d calls of %s", n, action)
			}
		}
		healthy(t, sim)
	})
}

// A publish reads a disk before it attaches it. That read counts as the first of those that wait until ECS has made the disk.
func TestANewDiskIsNotReadTwiceBeforeItIsAttached(t *testing.T) {
	for state, test := range map[disk.State]struct {
		age, atLeast, atMost time.Duration // of the disk, and the wait that follows
	}{
		disk.Creating:  {200 * time.Millisecond, 500 * time.Millisecond, 1500 * time.Millisecond},
		disk.Available: {5 * time.Second, 0, 0},
	} {
		t.Run(string(state), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim, c := working(t, nil)
				made, err := create(t.Context(), c, "vol-1")
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(test.age)
				if d, err := c.Get(t.Context(), made.ID); err != nil || d.State != state {
					t.Fatalf("disk %+v, error %v", d, err)
				}
				began, before := time.Now(), len(sim.Calls())
				if err := c.settled(t.Context(), made.ID); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took < test.atLeast || took > test.atMost {
					t.Errorf("it waited for %v, want %v to %v", took, test.atLeast, test.atMost)
				}
				for _, call := range sim.Calls()[before:] {
					if call.Time.Before(began.Add(200 * time.Millisecond)) {
						t.Errorf("read again %v after a read", call.Time.Sub(began))
					}
				}
			})
		})
	}
}

func TestAttachingTwiceIsSuccess(t *testing.T) {
	for _, code := range ecssim.InUseCodes {
		t.Run(code, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim, c := working(t, func(config *ecssim.Config) { config.Doubts.InUseCode = code })
				id := attachedDisk(t, c, "vol-1", nodeA)
				d, err := attach(t.Context(), c, nodeA, id)
				if err != nil || d.Serial == "" {
					t.Errorf("disk %+v, error %v", d, err)
				}
				healthy(t, sim)
			})
		})
	}
}

func TestADiskIsNotTakenFromAnotherInstance(t *testing.T) {
	for _, code := range ecssim.InUseCodes {
		t.Run(code, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim, c := working(t, func(config *ecssim.Config) { config.Doubts.InUseCode = code })
				id := attachedDisk(t, c, "vol-1", nodeA)
				_, err := attach(t.Context(), c, nodeB, id)
				if e := wantKind(t, err, disk.InUse); !strings.Contains(e.Error(), nodeA) || e.Instance != nodeB || e.Disk != id {
					t.Errorf("error %q doesn't say who holds the disk", e)
				}
				if phaseOf(sim, id, nodeA) != "In_use" || calls(sim, "DetachDisk") > 0 {
					t.Error("the disk was taken away")
				}
			})
		})
	}
}

func TestDetachingWhatIsNotAttachedIsSuccess(t *testing.T) {
	for _, code := range ecssim.DetachedCodes {
		t.Run(code, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim, c := working(t, func(config *ecssim.Config) { config.Doubts.DetachedCode = code })
				free, busy := madeDisk(t, c, "vol-1"), attachedDisk(t, c, "vol-2", nodeB)
				for name, at := range map[string]struct {
					instance disk.InstanceID
					id       disk.ID
				}{
					"attached to nothing":   {nodeA, free},
					"attached to another":   {nodeA, busy},
					"no such instance":      {"i-absent", free},
					"instance that is gone": {"i-absent", busy},
				} {
					if _, err := detach(t.Context(), c, at.instance, at.id); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
				if _, err := detach(t.Context(), c, nodeA, "d-bp1absent"); disk.KindOf(err) != disk.NotFound {
					t.Errorf("no such disk: %v, want NotFound", err)
				}
				if phaseOf(sim, busy, nodeB) != "In_use" {
					t.Error("a disk was detached from an instance that nobody named")
				}
			})
		})
	}
}

func TestAnAttachDuringADetachIsNoSuccess(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		t.Run(fmt.Sprint("ECS refuses it: ", refuse), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim, c := working(t, func(config *ecssim.Config) {
					config.Doubts.RefuseAttachWhileDetaching = refuse
					config.Queues = ecssim.Parallel
				})
				id := attachedDisk(t, c, "vol-1", nodeA)
				var all sync.WaitGroup
				all.Go(func() {
					if _, err := detach(t.Context(), c, nodeA, id); err != nil {
						t.Error(err)
					}
				})
				time.Sleep(time.Second)
				_, err := attach(t.Context(), c, nodeA, id)
				wantKind(t, err, disk.Pending)
				all.Wait()
				if _, err := attach(t.Context(), c, nodeA, id); err != nil || phaseOf(sim, id, nodeA) != "In_use" {
					t.Errorf("attached again: %v, %s", err, phaseOf(sim, id, nodeA))
				}
				healthy(t, sim)
			})
		})
	}
}

func TestAReplyThatIsLostLosesNothing(t *testing.T) {
	for _, action := range []string{"AttachDisk", "DetachDisk"} {
		for _, kind := range []string{ecssim.FaultLostReply, ecssim.FaultErrorAfter, ecssim.FaultTruncated, ecssim.FaultEmpty, ecssim.FaultHTML} {
			t.Run(action+" "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					sim, c := working(t, nil)
					id := madeDisk(t, c, "vol-1")
					if err := sim.AddFault(ecssim.Fault{Action: action, Do: kind, Count: 1}); err != nil {
						t.Fatal(err)
					}
					_, err := attach(inTime(t, 30*time.Second), c, nodeA, id)
					if action == "AttachDisk" { // ECS is asked again by the next call, and says that it has done it
						wantKind(t, err, disk.UnknownOutcome)
						_, err = attach(inTime(t, 30*time.Second), c, nodeA, id)
					}
					if err != nil {
						t.Errorf("attach: %v", err)
					}
					if _, err := detach(inTime(t, 30*time.Second), c, nodeA, id); err != nil {
						t.Errorf("detach: %v", err)
					}
					if n := calls(sim, "DetachDisk"); n != 1 {
						t.Errorf("%d detaches, want one", n)
					}
					healthy(t, sim)
				})
			})
		}
	}
}

func TestACallThatNeverArrivedHasAnUnknownOutcome(t *testing.T) {
	for _, action := range []string{"AttachDisk", "DetachDisk"} {
		t.Run(action, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim, c := working(t, nil)
				id := madeDisk(t, c, "vol-1")
				lose := func(do func() error) {
					if err := sim.AddFault(ecssim.Fault{Action: action, Do: ecssim.FaultLostRequest, Count: 1}); err != nil {
						t.Fatal(err)
					}
					err := do()
					if sim.Faults()[0].Hit == 1 {
						wantKind(t, err, disk.UnknownOutcome)
						err = do()
					}
					if err != nil {
						t.Error(err)
					}
					sim.ClearFaults()
				}
				lose(func() error { _, err := attach(inTime(t, 30*time.Second), c, nodeA, id); return err })
				lose(func() error { _, err := detach(inTime(t, 30*time.Second), c, nodeA, id); return err })
				healthy(t, sim)
			})
		})
	}
}

// A detach that ECS accepted proves more than one that may never have reached it, also to the next caller.
func TestALeftSlotKeepsTheReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c := working(t, nil)
		id := attachedDisk(t, c, "vol-1", nodeA)
		if err := sim.AddFault(ecssim.Fault{Action: "DetachDisk", Do: ecssim.FaultLostRequest}); err != nil {
			t.Fatal(err)
		}
		if err := sim.AddFault(ecssim.Fault{Action: "DescribeDisks", Do: ecssim.FaultLostRequest}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			_, reply, err := c.Detach(inTime(t, 10*time.Second), nodeA, id)
			if reply.Answer != disk.NoAnswer || disk.KindOf(reply.Err) != disk.UnknownOutcome {
				t.Errorf("the reply is %+v, want none", reply)
			}
			wantKind(t, err, disk.UnknownOutcome)
		}
		if n := calls(sim, "DetachDisk"); n != 1 {
			t.Errorf("%d calls of DetachDisk, want 1", n)
		}
	})
}

func TestWorkThatIsStuckIsPendingAndNotAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c := working(t, nil)
		id := madeDisk(t, c, "vol-1")
		if err := sim.AddFault(ecssim.Fault{Action: "AttachDisk", Do: ecssim.FaultStuck, Count: 1}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			ctx := inTime(t, 15*time.Second)
			_, err := attach(ctx, c, nodeA, id)
			wantKind(t, err, disk.Pending)
			if ctx.Err() != nil {
				t.Error("the answer came after the deadline")
			}
		}
		sim.Unstick("")
		if _, err := attach(inTime(t, 15*time.Second), c, nodeA, id); err != nil {
			t.Error(err)
		}
		if n := calls(sim, "AttachDisk"); n != 1 {
			t.Errorf("%d calls of AttachDisk, want 1", n)
		}
	})
}

// A Pod is deleted while its disk is attached: nobody comes back for the attach.
func TestADetachDoesNotWaitForAnAttachThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c := working(t, nil)
		id := madeDisk(t, c, "vol-1")
		if err := sim.AddFault(ecssim.Fault{Action: "AttachDisk", Do: ecssim.FaultStuck, Count: 1}); err != nil {
			t.Fatal(err)
		}
		other := madeDisk(t, c, "vol-2")
		var both sync.WaitGroup
		for _, id := range []disk.ID{id, other} { // the second is refused, which teaches that the instance takes one at a time
			both.Go(func() {
				_, err := attach(inTime(t, 30*time.Second), c, nodeA, id)
				wantKind(t, err, disk.Pending)
			})
			time.Sleep(time.Second)
		}
		both.Wait()
		sim.Unstick("")
		begin := time.Now()
		if _, err := c.Get(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if _, err := detach(inTime(t, 2*time.Minute), c, nodeA, id); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("the detach took %s", took)
		}
	})
}

func TestWorkThatFailsIsPendingAndWorksTheNextTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c := working(t, nil)
		id := madeDisk(t, c, "vol-1")
		twice := func(action string, do func() error) {
			if err := sim.AddFault(ecssim.Fault{Action: action, Do: ecssim.FaultFails, Count: 1}); err != nil {
				t.Fatal(err)
			}
			wantKind(t, do(), disk.Pending)
			if err := do(); err != nil {
				t.Error(err)
			}
		}
		twice("AttachDisk", func() error { _, err := attach(inTime(t, 30*time.Second), c, nodeA, id); return err })
		twice("DetachDisk", func() error { _, err := detach(inTime(t, 30*time.Second), c, nodeA, id); return err })
		healthy(t, sim)
	})
}

// The process outlives a panic of a handler.
func TestAPanicHoldsNoSlotForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c := working(t, nil)
		ids := []disk.ID{madeDisk(t, c, "vol-1"), madeDisk(t, c, "vol-2")}
		func() {
			defer func() { _ = recover() }()
			o := c.attaching(t.Context(), nodeA, ids[0], false)
			o.judge = func(disk.Disk, disk.Reply) (bool, error) { panic("odd") }
			_, _, _ = o.run(t.Context(), batch.Change{Disk: ids[0], Kind: batch.Attach})
		}()
		for _, id := range ids {
			if _, err := attach(inTime(t, time.Minute), c, nodeA, id); err != nil {
				t.Error(err)
			}
		}
		healthy(t, sim)
	})
}

func TestACallThatIsNotSentKeepsItsPosition(t *testing.T) {
	for name, fault := range map[string]ecssim.Fault{
		"throttled":            {Do: ecssim.FaultThrottle, Code: "Throttling.User"},
		"unreachable":          {Do: ecssim.FaultRefused},
		"a disk in the making": {Do: ecssim.FaultError, Status: 403, Code: "IncorrectDiskStatus.Initializing"},
		"after a suspension":   {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim, c := working(t, nil)
				var ids []disk.ID
				for i := range 5 {
					ids = append(ids, madeDisk(t, c, fmt.Sprintf("vol-%d", i)))
				}
				var all sync.WaitGroup
				begin := func(id disk.ID) {
					all.Go(func() {
						if _, err := attach(t.Context(), c, nodeA, id); err != nil {
							t.Error(err)
						}
					})
					time.Sleep(time.Second)
				}
				begin(ids[0])
				begin(ids[1]) // is refused, which teaches that the instance takes one at a time
				all.Wait()

				ctx := t.Context()
				if fault.Do == "" {
					var watch suspension.Watch
					watch.Beat(time.Now())
					ctx = watch.Mark(ctx)
					time.Sleep(10 * time.Second)
				} else {
					fault.Action, fault.Params = "AttachDisk", map[string]string{"DiskId": string(ids[2])}
					if err := sim.AddFault(fault); err != nil {
						t.Fatal(err)
					}
				}
				ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
				defer cancel()
				if _, err := attach(ctx, c, nodeA, ids[2]); err == nil {
					t.Fatal("the call was sent")
				}
				sim.ClearFaults()
				begin(ids[3])
				begin(ids[4])
				begin(ids[2])
				all.Wait()

				var order []disk.ID
				for _, call := range sim.Calls() {
					if call.Action == "AttachDisk" && call.Code == "" {
						order = append(order, disk.ID(call.Disk))
					}
				}
				if slices.Index(order, ids[2]) > slices.Index(order, ids[4]) {
					t.Errorf("%s came back to a later position than it had: attached in the order %v", ids[2], order)
				}
			})
		})
	}
}

func TestManyDisksOfAnInstanceAttachAtOnce(t *testing.T) {
	for _, test := range []struct {
		name   string
		queues ecssim.Queues
		disks  int
		times  float64 // of one attach
	}{
		{"in parallel", ecssim.Parallel, 64, 2.5},
		{"one at a time", ecssim.Serial, 28, 28 * 1.05},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim, c := working(t, func(config *ecssim.Config) { config.Queues = test.queues })
				var ids []disk.ID
				for i := range test.disks + 4 {
					ids = append(ids, madeDisk(t, c, fmt.Sprintf("vol-%d", i)))
				}
				began := time.Now()
				for _, id := range ids[:4] {
					if _, err := attach(t.Context(), c, nodeB, id); err != nil {
						t.Fatal(err)
					}
				}
				one := time.Since(began) / 4
				began = time.Now()
				var all sync.WaitGroup
				for _, id := range ids[4:] {
					all.Go(func() {
						if _, err := attach(t.Context(), c, nodeA, id); err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
				if times := float64(time.Since(began)) / float64(one); times > test.times {
					t.Errorf("%d disks took %.2f times as long as one (%v), want at most %.2f", test.disks, times, one, test.times)
				}
				healthy(t, sim)
			})
		})
	}
}

func TestTheQueueOfAnInstanceCostsNobodyHisDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c := working(t, nil)
		var ids []disk.ID
		for i := range 24 {
			ids = append(ids, madeDisk(t, c, fmt.Sprintf("vol-%d", i)))
		}
		var all sync.WaitGroup
		for _, id := range ids {
			all.Go(func() {
				for {
					ctx := inTime(t, 15*time.Second)
					_, err := attach(ctx, c, nodeA, id)
					if ctx.Err() != nil {
						t.Errorf("%s: the answer came after the deadline: %v", id, err)
					}
					if err == nil {
						return
					}
					wantKind(t, err, disk.Pending)
					time.Sleep(2 * time.Second)
				}
			})
		}
		all.Wait()
		healthy(t, sim)
	})
}
