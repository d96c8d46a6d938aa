//go:build e2e

package crash

import (
	"testing"

	"github.com/topodisk/topodisk/ecssim"
)

// noStock is what ECS says that looks at its stock before it looks whether it knows the client token.
var noStock = ecssim.Fault{Action: "CreateDisk", Do: ecssim.FaultError, Status: 403, Code: "OperationDenied.NoStock"}

func TestWantOfStockFromADriverThatHasForgottenLeavesNoDiskBehind(t *testing.T) {
	s := newScene(t)
	h := s.withDiskUnheard("forgotten", waits)
	d := s.onlyDisk("forgotten")
	s.kill(victims{driver: true})
	h.release(lose)
	s.must(s.Simulator.AddFault(s.Context(), noStock))
	s.must(s.restart(s.Context(), victims{driver: true}))
	s.awaitEvent(namespace, "forgotten", "NoStock")
	if node, err := s.selectedNode(s.Context(), "forgotten"); err != nil || s.ZoneOf(node) != d.Zone {
		t.Errorf("the claim was taken from its node while its disk was there: now %q, %v", node, err)
	}
	s.must(s.deleteClaim(s.Context(), "forgotten"))
	s.awaitNoClaim("forgotten")
}

func TestWantOfStockFromADriverThatHasForgottenMovesTheClaimOnceNoDiskIsProven(t *testing.T) {
	s := newScene(t)
	s.must(s.claim(s.Context(), "witness", atOnce)) // its disk shows whether a list is to be believed
	s.bound("witness")
	h := s.hold(moment{call: "CreateVolume"}, func() error { return s.claim(s.Context(), "unmade", waits) })
	first, err := s.selectedNode(s.Context(), "unmade")
	s.must(err)
	s.kill(victims{driver: true})
	h.release(lose)
	s.must(s.Simulator.SellOut(s.Context(), s.ZoneOf(first)))
	s.must(s.restart(s.Context(), victims{driver: true}))
	s.awaitEvent(namespace, "unmade", "ResourceExhausted")
	b, err := s.AwaitBound(s.Context(), namespace, "unmade", 2*limit)
	s.must(err)
	if d := s.onlyDisk("unmade"); d.ID != b.Disk() || d.Zone == s.ZoneOf(first) {
		t.Errorf("the claim has disk %s, disk %s is in %s; the node that had none was in %s", b.Disk(), d.ID, d.Zone, s.ZoneOf(first))
	}
}
