package ecs

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
)

func TestADiskGrowsWhereItIs(t *testing.T) {
	for _, test := range []struct {
		name     string
		attach   bool
		stop     bool
		resizing string // the Type asked for
	}{
		{"at rest", false, false, "offline"},
		{"in use", true, false, "online"},
		{"on an instance that is stopped", true, true, "offline"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim, c := working(t, nil)
				id := madeDisk(t, c, "vol-1")
				if test.attach {
					if _, err := attach(t.Context(), c, nodeA, id); err != nil {
						t.Fatal(err)
					}
				}
				if test.stop {
					stopped := "Stopped"
					if err := sim.SetInstance(nodeA, ecssim.InstanceChange{Status: &stopped}); err != nil {
						t.Fatal(err)
					}
				}
				d, err := grow(t.Context(), c, id, 30)
				if err != nil || d.Size != 30 || sim.Disks()[0].Size != 30 {
					t.Errorf("resized to %d, %d in truth: %v", d.Size, sim.Disks()[0].Size, err)
				}
				all := sim.Calls()
				if last := all[len(all)-2]; last.Action != "ResizeDisk" || last.Params["Type"] != test.resizing || all[len(all)-1].Action != "DescribeDisks" {
					t.Errorf("the last call but one was %s %s, and then %s", last.Action, last.Params["Type"], all[len(all)-1].Action)
				}
			})
		})
	}
}

func TestADiskThatIsLargeEnoughIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c := working(t, nil)
		id := madeDisk(t, c, "vol-1")
		for _, size := range []disk.GiB{1, 20} {
			d, err := grow(t.Context(), c, id, size)
			if err != nil || d.Size != 20 {
				t.Errorf("to %d GiB: %d, %v", size, d.Size, err)
			}
		}
		if n := calls(sim, "ResizeDisk"); n > 0 {
			t.Errorf("%d calls of ResizeDisk", n)
		}
	})
}

func TestAResizeThatTookEffectUnseenIsSuccess(t *testing.T) {
	for _, kind := range []string{ecssim.FaultLostReply, ecssim.FaultErrorAfter, ecssim.FaultTruncated, ecssim.FaultEmpty} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim, c := working(t, nil)
				id := madeDisk(t, c, "vol-1")
				if err := sim.AddFault(ecssim.Fault{Action: "ResizeDisk", Do: kind, Count: 1}); err != nil {
					t.Fatal(err)
				}
				if d, err := grow(t.Context(), c, id, 30); err != nil || d.Size != 30 {
					t.Errorf("size %d, %v", d.Size, err)
				}
			})
		})
	}
}

func TestAResizeThatCannotBeSaysWhy(t *testing.T) {
	for _, test := range []struct {
		name  string
		setUp func(*ecssim.Server) error
		size  disk.GiB
		want  disk.Kind
	}{
		{"lost on the way", func(sim *ecssim.Server) error {
			return sim.AddFault(ecssim.Fault{Action: "ResizeDisk", Do: ecssim.FaultLostRequest, Count: 1})
		}, 30, disk.UnknownOutcome},
		{"an order is under way", func(sim *ecssim.Server) error {
			return sim.AddFault(ecssim.Fault{Action: "ResizeDisk", Do: ecssim.FaultError, Status: 400, Code: "LastOrderProcessing"})
		}, 30, disk.Pending},
		{"too large for its category", func(*ecssim.Server) error { return nil }, 1 << 20, disk.OutOfRange},
		{"not allowed", func(sim *ecssim.Server) error {
			return sim.AddFault(ecssim.Fault{Action: "ResizeDisk", Do: ecssim.FaultError, Status: 403, Code: "Forbidden.RAM"})
		}, 30, disk.Denied},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim, c := working(t, nil)
				id := madeDisk(t, c, "vol-1")
				if err := test.setUp(sim); err != nil {
					t.Fatal(err)
				}
				_, err := grow(inTime(t, 30*time.Second), c, id, test.size)
				if e := wantKind(t, err, test.want); e.Disk != id {
					t.Errorf("error %q doesn't name the disk", e)
				}
			})
		})
	}
}

// An offline resize of a disk in use would leave its guest with the old size, and nothing would mend that before a restart.
func TestAResizeWaitsForAnInstanceThatStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c := working(t, nil)
		id := attachedDisk(t, c, "vol-1", nodeA)
		if err := sim.AddFault(ecssim.Fault{Action: "ResizeDisk", Do: ecssim.FaultError, Status: 403, Code: "IncorrectInstanceStatus", Count: 1}); err != nil {
			t.Fatal(err)
		}
		_, err := grow(t.Context(), c, id, 30)
		wantKind(t, err, disk.Pending)
		if n := calls(sim, "ResizeDisk"); n != 1 {
			t.Errorf("%d calls of ResizeDisk, want 1", n)
		}
		if _, err := grow(t.Context(), c, id, 30); err != nil {
			t.Fatal(err)
		}
		if seen, err := sim.Devices(nodeA); err != nil || len(seen) != 1 || seen[0].Size != 30 {
			t.Errorf("the guest sees %v, want 30 GiB; error %v", seen, err)
		}
	})
}

// TestASizeThatECSDoesNotShowIsNoSuccess: ECS may accept an order that is never carried out.
func TestASizeThatECSDoesNotShowIsNoSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c := working(t, nil)
		id := madeDisk(t, c, "vol-1")
		if err := sim.AddFault(ecssim.Fault{Action: "ResizeDisk", Do: ecssim.FaultIgnored, Count: 1}); err != nil {
			t.Fatal(err)
		}
		_, err := grow(inTime(t, time.Minute), c, id, 30)
		if e := wantKind(t, err, disk.Pending); e.Disk != id || !strings.Contains(e.Error(), "still shows 20 GiB") || !strings.Contains(e.Error(), "order ") {
			t.Errorf("error %q doesn't say what ECS has accepted and shows", e)
		}
		if d, err := grow(t.Context(), c, id, 30); err != nil || d.Size != 30 {
			t.Errorf("the same call again: %d GiB, %v", d.Size, err)
		}
	})
}

// TestASharedDiskGrowsForAllInstancesOrNone: a guest that runs doesn't see what is resized offline.
func TestASharedDiskGrowsForAllInstancesOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c := working(t, nil)
		spec, try, token := wanted("vol-1")
		spec.MultiAttach = true
		made, err := c.Create(t.Context(), spec, try, token)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Await(t.Context(), made.ID, isAvailable); err != nil {
			t.Fatal(err)
		}
		for _, node := range []disk.InstanceID{nodeA, nodeB} {
			if _, err := attach(t.Context(), c, node, made.ID); err != nil {
				t.Fatal(err)
			}
		}
		set := func(id disk.InstanceID, status string) {
			t.Helper()
			if err := sim.SetInstance(string(id), ecssim.InstanceChange{Status: &status}); err != nil {
				t.Fatal(err)
			}
		}
		set(nodeB, "Stopped")
		_, err = grow(t.Context(), c, made.ID, 30)
		if e := wantKind(t, err, disk.Blocked); !strings.Contains(e.Error(), nodeB+" is Stopped") || !strings.Contains(e.Error(), nodeA+" is Running") {
			t.Errorf("error %q doesn't name the instances", e)
		}
		if size := sim.Disks()[0].Size; size != 20 {
			t.Errorf("the disk has %d GiB, and %s doesn't see it", size, nodeA)
		}
		set(nodeB, "Running")
		if _, err := grow(t.Context(), c, made.ID, 30); err != nil {
			t.Fatal(err)
		}
		set(nodeA, "Stopped")
		set(nodeB, "Stopped")
		if _, err := grow(t.Context(), c, made.ID, 40); err != nil {
			t.Fatal(err)
		}
		set(nodeA, "Running")
		if seen, err := sim.Devices(nodeA); err != nil || len(seen) != 1 || seen[0].Size != 40 {
			t.Errorf("the guest sees %v, want 40 GiB; error %v", seen, err)
		}
	})
}

func TestADiskThatIsNotThereCannotBeResized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := working(t, nil)
		madeDisk(t, c, "vol-1")
		for _, id := range []disk.ID{"d-bp1absent", "no disk"} {
			_, err := grow(t.Context(), c, id, 30)
			wantKind(t, err, disk.NotFound)
		}
	})
}

func TestADiskInTheMakingIsResizedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := working(t, nil)
		made, err := create(t.Context(), c, "vol-1")
		if err != nil {
			t.Fatal(err)
		}
		_, err = grow(t.Context(), c, made.ID, 30)
		if e := wantKind(t, err, disk.Pending); fmt.Sprint(e) == "" {
			t.Error("no reason is given")
		}
	})
}

// grow resizes a disk as a read shows it.
func grow(ctx context.Context, c *Client, id disk.ID, size disk.GiB) (disk.Disk, error) {
	d, err := c.Get(ctx, id)
	if err != nil {
		return d, err
	}
	return c.Resize(ctx, d, size)
}

// TestASizeThatTheDiskHasAlreadyIsNoRefusal: the reply to an earlier call was lost, and reads lag behind it. OutOfRange would have
// csi-resizer give up a size that the disk has.
func TestASizeThatTheDiskHasAlreadyIsNoRefusal(t *testing.T) {
	for name, fault := range map[string]ecssim.Fault{
		"reads lag":  {Action: "DescribeDisks", Do: ecssim.FaultStale, Lag: 5 * time.Second},
		"reads fail": {Action: "DescribeDisks", Do: ecssim.FaultError, Status: 503, Code: "ServiceUnavailable", Count: 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim, c := working(t, nil)
				id := madeDisk(t, c, "vol-1")
				before, err := c.Get(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := grow(t.Context(), c, id, 30); err != nil {
					t.Fatal(err)
				}
				if err := sim.AddFault(fault); err != nil {
					t.Fatal(err)
				}
				if d, err := c.Resize(inTime(t, time.Minute), before, 30); err != nil || d.Size != 30 {
					t.Errorf("size %d, %v", d.Size, err)
				}
			})
		})
	}
}
