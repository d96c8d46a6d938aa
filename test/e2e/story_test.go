//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/simulator"
	"github.com/topodisk/topodisk/topology"
)

func TestPodGetsItsDiskInTheZoneOfTheSelectedNode(t *testing.T) {
	s := newScene(t)
	s.podWithClaim("notes", s.Class(waits, essdThenAuto), "20Gi")
	node := s.awaitSelection("notes")
	b, d := s.bound("notes", soon)
	if d.Zone != s.ZoneOf(node) {
		t.Errorf("node %s was selected in %s, the disk is in %s", node, s.ZoneOf(node), d.Zone)
	}
	s.running("notes", d)
	if calls := s.creates("notes"); len(calls) != 1 {
		t.Errorf("ECS got %d CreateDisk calls, want 1", len(calls))
	}
	checkVolume(t, b, d)
}

// checkVolume checks the fields of a volume that others rely on.
func checkVolume(t *testing.T, b lab.Bound, d ecssim.DiskState) {
	t.Helper()
	pv, claim := b.Volume, b.Claim
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"name", pv.Name, d.ID},
		{"claimRef", *pv.Spec.ClaimRef, corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace,
			Name: claim.Name, UID: claim.UID, ResourceVersion: pv.Spec.ClaimRef.ResourceVersion}},
		{"class", pv.Spec.StorageClassName, *claim.Spec.StorageClassName},
		{"reclaim policy", pv.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimDelete},
		{"filesystem", pv.Spec.CSI.FSType, "ext4"},
		{"volume mode", *pv.Spec.VolumeMode, corev1.PersistentVolumeFilesystem},
		{"capacity", pv.Spec.Capacity.Storage().Value(), int64(d.Size) << 30},
		{"provisioned-by", pv.Annotations["pv.kubernetes.io/provisioned-by"], lab.DriverName},
		{"affinity", pv.Spec.NodeAffinity.Required.NodeSelectorTerms, []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: topology.WellKnownZoneKey, Operator: corev1.NodeSelectorOpIn, Values: []string{d.Zone}}}}}},
	} {
		if got, want := fmt.Sprintf("%+v", c.got), fmt.Sprintf("%+v", c.want); got != want {
			t.Errorf("%s of volume %s is %s, want %s", c.what, pv.Name, got, want)
		}
	}
	if !slices.Contains(pv.Finalizers, "external-provisioner.volume.kubernetes.io/finalizer") {
		t.Errorf("volume %s has finalizers %q, without the provisioner's", pv.Name, pv.Finalizers)
	}
	if pv.Spec.CSI.VolumeAttributes["storage.kubernetes.io/csiProvisionerIdentity"] == "" {
		t.Errorf("volume %s has attributes %v, without the provisioner's identity", pv.Name, pv.Spec.CSI.VolumeAttributes)
	}
}

func TestStatefulSetGetsOneDiskPerZone(t *testing.T) {
	s := newScene(t)
	set := lab.StatefulSet(s.Namespace, "ledger", s.Class(waits, essdThenAuto), "20Gi", 3)
	_, err := s.Client.AppsV1().StatefulSets(s.Namespace).Create(s.Context(), set, metav1.CreateOptions{})
	s.Must(err)
	zones := map[string]bool{}
	for n := range 3 {
		_, d := s.bound(fmt.Sprintf("data-ledger-%d", n), soon)
		s.running(fmt.Sprintf("ledger-%d", n), d)
		zones[d.Zone] = true
	}
	if len(zones) != 3 {
		t.Errorf("the disks are in %v, want three zones", zones)
	}
}

func TestImmediateClaimsSpreadOverTheAllowedZones(t *testing.T) {
	s := newScene(t)
	allowed := s.Zones()[1:]
	class := s.Class(atOnce, essdThenAuto, func(c *storagev1.StorageClass) {
		c.AllowedTopologies = lab.Class("", atOnce, nil, allowed...).AllowedTopologies
	})
	used := map[string]int{}
	for n := range 4 {
		s.Claim(fmt.Sprintf("archive-%d", n), class, "20Gi")
	}
	for n := range 4 {
		_, d := s.bound(fmt.Sprintf("archive-%d", n), soon)
		used[d.Zone]++
	}
	if used[allowed[0]] != 2 || used[allowed[1]] != 2 {
		t.Errorf("the disks are in %v, want two in each of %v", used, allowed)
	}
}

func TestImmediateClaimGetsAZoneOfTheCluster(t *testing.T) {
	s := newScene(t)
	s.Claim("anywhere", s.Class(atOnce, essdThenAuto), "20Gi")
	_, d := s.bound("anywhere", soon)
	if !slices.Contains(s.Zones(), d.Zone) {
		t.Errorf("the disk is in %s, which has no node", d.Zone)
	}
}

func TestNextCategoryIsUsedWhereTheFirstIsSoldOut(t *testing.T) {
	s := newScene(t)
	zone := s.Zones()[0]
	s.Must(s.Simulator.SetStock(s.Context(), zone, "cloud_essd", simulator.SoldOut))
	s.podWithClaim("reports", s.Class(waits, essdThenAuto), "20Gi", inZone(zone))
	_, d := s.bound("reports", soon)
	if d.Category != "cloud_auto" || d.Zone != zone {
		t.Errorf("the disk is %s in %s, want cloud_auto in %s", d.Category, d.Zone, zone)
	}
	s.running("reports", d)
	if seen := s.selections.Rescheduled(); len(seen) > 0 {
		t.Errorf("claims %q were rescheduled for it", seen)
	}
}

func TestClaimMovesOnWhenTheSelectedZoneSellsOut(t *testing.T) {
	s := newScene(t)
	s.awaitLeaderForNewClaims()
	s.fault(ecssim.Fault{Action: "CreateDisk", Do: ecssim.FaultDelay, DelayBefore: 1500 * time.Millisecond, Count: 1})
	s.podWithClaim("orders", s.Class(waits, essdThenAuto), "20Gi")
	soldOut := s.ZoneOf(s.awaitSelection("orders"))
	s.Must(s.Simulator.SellOut(s.Context(), soldOut))
	_, d := s.boundElsewhere("orders")
	if d.Zone == soldOut {
		t.Errorf("disk %s was made in %s, which has sold out", d.ID, d.Zone)
	}
	s.running("orders", d)
	if seen := s.selections.Rescheduled(); !slices.Equal(seen, []string{"orders"}) {
		t.Errorf("rescheduled claims are %q, want orders", seen)
	}
	if n := succeeded(s.creates("orders")); n != 1 {
		t.Errorf("%d CreateDisk calls succeeded, want 1", n)
	}
}

func TestClaimMovesOnWhenItsSelectedNodeIsDeleted(t *testing.T) {
	s := newScene(t)
	class := s.Class(waits, essdThenAuto)
	s.awaitCapacities(class)
	s.stopProvisioner()
	s.podWithClaim("moving", class, "20Gi")
	gone := s.awaitSelection("moving")
	s.removeNode(gone)
	s.Must(s.Topodisk.StartProvisioner(s.Context(), lab.ProvisionerName, quickElection...))
	_, d := s.boundElsewhere("moving")
	s.running("moving", d)
	if seen := s.selections.Of("moving"); len(seen) < 3 || seen[0] != gone || seen[1] != "" || seen[2] == gone {
		t.Errorf("selections are %q, want %s, taken back, another node", seen, gone)
	}
}

func TestSmallClaimIsRoundedUp(t *testing.T) {
	s := newScene(t)
	parameters := map[string]string{"type": "cloud_essd", "performanceLevel": "PL0", "csi.storage.k8s.io/fstype": "xfs"}
	s.Claim("small", s.Class(atOnce, parameters), "500Mi")
	b, d := s.bound("small", soon)
	if d.Size != 1 || d.Category != "cloud_essd" || d.PerformanceLevel != "PL0" {
		t.Errorf("the disk is %s %s of %d GiB, want cloud_essd PL0 of 1 GiB", d.Category, d.PerformanceLevel, d.Size)
	}
	if got := b.Volume.Spec.Capacity.Storage().String(); got != "1Gi" || b.Volume.Spec.CSI.FSType != "xfs" {
		t.Errorf("the volume has %s of %s, want 1Gi of xfs", got, b.Volume.Spec.CSI.FSType)
	}
}

func TestVolumeIsNamedAfterTheClaimIfAskedFor(t *testing.T) {
	s := newScene(t)
	s.restartProvisioner("--pv-name-source=volume-name")
	s.Cleanup(func() { s.restartProvisioner() })
	s.Claim("named", s.Class(atOnce, essdThenAuto), "20Gi")
	b, _ := s.bound("named", soon)
	if want := "disk-" + string(b.Claim.UID); b.Volume.Name != want {
		t.Errorf("the volume is called %s, want %s", b.Volume.Name, want)
	}
	s.deleteClaim("named")
	s.awaitNoVolume(b.Volume.Name)
}

func TestClassMayAllowAnotherZoneThanTheNodes(t *testing.T) {
	s := newScene(t)
	s.awaitLeaderForNewClaims()
	s.fault(ecssim.Fault{Action: "CreateDisk", Do: ecssim.FaultDelay, DelayBefore: 1500 * time.Millisecond, Count: 1})
	parameters := map[string]string{"type": "cloud_essd", "topodisk.io/strict-topology": "false"}
	s.podWithClaim("loose", s.Class(waits, parameters), "20Gi")
	soldOut := s.ZoneOf(s.awaitSelection("loose"))
	s.Must(s.Simulator.SellOut(s.Context(), soldOut))
	_, d := s.bound("loose", soon)
	if d.Zone == soldOut {
		t.Errorf("disk %s was made in %s, which has sold out", d.ID, d.Zone)
	}
	s.running("loose", d)
}

func TestNodeThatStaysWithoutTheDriverIsGivenUp(t *testing.T) {
	s := newScene(t)
	class := s.Class(waits, essdThenAuto)
	s.awaitCapacities(class)
	s.stopProvisioner()
	s.podWithClaim("patient", class, "20Gi")
	bare := s.awaitSelection("patient")
	s.removeCSINode(bare)
	s.Must(s.Topodisk.StartProvisioner(s.Context(), lab.ProvisionerName, append([]string{"--node-grace=2s"}, quickElection...)...))
	s.Cleanup(func() { s.restartProvisioner() })
	_, d := s.boundElsewhere("patient")
	s.running("patient", d)
	if seen := s.selections.Of("patient"); len(seen) < 3 || seen[0] != bare || seen[1] != "" {
		t.Errorf("selections are %q, want %s, taken back, another node", seen, bare)
	}
}

func TestBlockVolumeHasNoFilesystem(t *testing.T) {
	s := newScene(t)
	block := corev1.PersistentVolumeBlock
	s.Claim("raw", s.Class(atOnce, essdThenAuto), "20Gi", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = &block })
	b, _ := s.bound("raw", soon)
	if mode := b.Volume.Spec.VolumeMode; mode == nil || *mode != block || b.Volume.Spec.CSI.FSType != "" {
		t.Errorf("the volume has mode %v and file system %q", mode, b.Volume.Spec.CSI.FSType)
	}
}

func TestSchedulerKeepsAwayFromAZoneThatHasJustSoldOut(t *testing.T) {
	s := newScene(t)
	s.awaitLook(true)
	zone := s.Zones()[0]
	class := s.Class(waits, essdThenAuto)
	s.awaitObjects(1, class)
	s.sellOut(zone)
	s.podWithClaim("first", class, "20Gi", inZone(zone)) // asks, and is refused
	s.WaitFor("the zone has less than 20 GiB to give", soon, func(ctx context.Context) (bool, error) {
		return s.capacity(ctx, class, zone, func(bytes int64) bool { return bytes < 20<<30 })
	})
	s.awaitObjects(2, class)
	before := len(s.creates("first"))
	for n := range 6 { // two for each zone, if nobody remembered
		s.podWithClaim(fmt.Sprintf("later-%d", n), class, "20Gi")
	}
	for n := range 6 {
		name := fmt.Sprintf("later-%d", n)
		_, d := s.bound(name, soon)
		s.running(name, d)
	}
	if seen := s.selections.Rescheduled(); slices.ContainsFunc(seen, func(claim string) bool { return claim != "first" }) {
		t.Errorf("claims %q were sent to the sold-out zone", seen)
	}
	if calls := len(s.creates("first")) - before; calls > 8 { // two types a try, and a try every 5 s or more
		t.Errorf("%d CreateDisk calls for a claim that cannot be served", calls)
	}
	s.Must(s.Simulator.Restock(s.Context(), zone))
	_, d := s.bound("first", late) // the provisioner asks once a minute
	s.running("first", d)
	s.awaitObjects(1, class)
}
