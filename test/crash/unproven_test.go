//go:build e2e

package crash

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/ecssim"
)

// noStock is what ECS says that looks at its stock before it looks whether it knows the client token.
var noStock = ecssim.Fault{Action: "CreateDisk", Do: ecssim.FaultError, Status: 403, Code: "OperationDenied.NoStock"}

func TestSoldOutAfterUnknownOutcomeLeavesNoDisk(t *testing.T) {
	for n, v := range []victims{{}, {driver: true}, {provisioner: true}, {provisioner: true, driver: true}} { // who has forgotten
		t.Run(v.String(), func(t *testing.T) {
			s := newScene(t)
			claim := fmt.Sprintf("forgotten-%d", n)
			h := s.withDiskUnheard(claim, waits)
			d := s.onlyDisk(claim)
			s.kill(v)
			h.release(lose)
			s.Must(s.Simulator.AddFault(s.Context(), noStock))
			s.passed()
			s.Must(s.restart(s.Context(), v))
			s.Must(s.await(s.Context(), "the driver has found the disk, or said twice that it has none", limit, func(ctx context.Context) error {
				_, err := s.Client.CoreV1().PersistentVolumes().Get(ctx, d.ID, metav1.GetOptions{})
				if n := s.count("CreateVolume"); err != nil && n < 3 {
					return fmt.Errorf("it was asked %d times, %w", n, err)
				}
				return nil
			}))
			if node, err := s.selectedNode(s.Context(), claim); err != nil || s.ZoneOf(node) != d.Zone {
				t.Errorf("the claim was taken from its node while its disk was there: now %q, %v", node, err)
			}
			s.Must(s.deleteClaim(s.Context(), claim))
			s.awaitNoClaim(claim)
		})
	}
}

func TestSoldOutAfterDriverRestartMovesOnceProven(t *testing.T) {
	s := newScene(t)
	s.Must(s.claim(s.Context(), "witness", atOnce)) // its disk shows whether a list is to be believed
	s.bound("witness")
	h := s.hold(moment{call: "CreateVolume"}, func() error { return s.claim(s.Context(), "unmade", waits) })
	first, err := s.selectedNode(s.Context(), "unmade")
	s.Must(err)
	s.kill(victims{driver: true})
	h.release(lose)
	s.Must(s.Simulator.SellOut(s.Context(), s.ZoneOf(first)))
	s.Must(s.restart(s.Context(), victims{driver: true}))
	s.awaitEvent(namespace, "unmade", "an earlier call may have made a disk")
	b, err := s.AwaitBound(s.Context(), namespace, "unmade", 4*limit)
	s.Must(err)
	if d := s.onlyDisk("unmade"); d.ID != b.Disk() || d.Zone == s.ZoneOf(first) {
		t.Errorf("the claim has disk %s, disk %s is in %s; the node that had none was in %s", b.Disk(), d.ID, d.Zone, s.ZoneOf(first))
	}
}

func TestDeniedAfterUnknownOutcomeLeavesNoDisk(t *testing.T) {
	s := newScene(t)
	h := s.withDiskUnheard("unheard", atOnce)
	s.onlyDisk("unheard")
	for _, action := range []string{"CreateDisk", "DescribeDisks"} {
		s.Must(s.Simulator.AddFault(s.Context(), ecssim.Fault{Action: action, Do: ecssim.FaultError, Status: 403, Code: "Forbidden.RAM"}))
	}
	h.release(lose)
	s.awaitEvent(namespace, "unheard", "needs a permission")
	s.Must(s.deleteClaim(s.Context(), "unheard"))
	s.awaitNoClaim("unheard")
	s.Must(s.await(s.Context(), "the driver refuses three times", limit, func(context.Context) error {
		if n := s.count("CreateVolume"); n < 4 {
			return fmt.Errorf("it was asked %d times", n)
		}
		return nil
	}))
	if n := s.metric("topodisk_provisioner_creates_unknown"); n != 1 {
		t.Errorf("the metric says that %v creates are unknown", n)
	}
	s.Must(s.Simulator.ClearFaults(s.Context()))
	s.Must(s.settle(s.Context()))
	if n := s.metric(`topodisk_provisioner_leaks_prevented_total{result="saved"}`); n < 1 {
		t.Errorf("the metric says that %v leaks were prevented", n)
	}
	if disks := s.disks("unheard"); len(disks) > 0 {
		t.Errorf("disk %s is left", disks[0].ID)
	}
}
