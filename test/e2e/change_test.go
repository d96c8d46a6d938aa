//go:build e2e

package e2e

import (
	"context"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/lab/simulator"
)

// unattachedMayBeCut lets ECS take snapshots of disks that no Pod has had, as it does of some categories, until the test is over.
func (s *scene) unattachedMayBeCut() {
	s.Helper()
	state, err := s.Simulator.State(s.Context())
	s.Must(err)
	doubts := state.Doubts
	doubts.SnapshotUnattached = []string{"cloud_essd"}
	s.Must(s.Simulator.SetDoubts(s.Context(), doubts))
	s.Cleanup(func() {
		if err := s.Simulator.SetDoubts(context.Background(), state.Doubts); err != nil {
			s.Errorf("put the doubts back: %v", err)
		}
	})
}

// cut takes a snapshot of a disk and returns its ID. It goes when the test is over.
func (s *scene) cut(id string) (snapshot string) {
	s.Helper()
	driver := s.driver()
	s.WaitFor("disk "+id+" is cut", late, func(ctx context.Context) (bool, error) {
		cut, err := driver.CreateSnapshot(ctx, &csi.CreateSnapshotRequest{Name: "of-" + id, SourceVolumeId: id})
		snapshot = cut.GetSnapshot().GetSnapshotId()
		return cut.GetSnapshot().GetReadyToUse(), err
	})
	s.Cleanup(func() {
		if _, err := driver.DeleteSnapshot(context.Background(), &csi.DeleteSnapshotRequest{SnapshotId: snapshot}); err != nil {
			s.Errorf("delete snapshot %s: %v", snapshot, err)
		}
	})
	return snapshot
}

// modify changes a disk as csi-resizer does for a VolumeAttributesClass.
func (s *scene) modify(id string, parameters map[string]string) {
	s.Helper()
	driver := s.driver()
	s.WaitFor("the disk is changed", late, func(ctx context.Context) (bool, error) {
		_, err := driver.ControllerModifyVolume(ctx, &csi.ControllerModifyVolumeRequest{VolumeId: id, MutableParameters: parameters})
		return err == nil, err
	})
}

func TestADiskIsChangedInPlace(t *testing.T) {
	s := newScene(t)
	s.Claim("ledger", s.Class(atOnce, map[string]string{"type": "cloud_essd"}), "100Gi")
	b, _ := s.bound("ledger", soon)
	s.modify(b.Disk(), map[string]string{"type": "cloud_auto", "diskTags/team": "web"})
	if d := s.onlyDisk("ledger"); d.Category != "cloud_auto" || d.Tags["team"] != "web" {
		t.Errorf("the disk is a %s with tags %v, want a cloud_auto of team web", d.Category, d.Tags)
	}
	s.modify(b.Disk(), map[string]string{"burstingEnabled": "true", "-diskTags/team": ""})
	calls, err := s.Simulator.Calls(s.Context(), "ModifyDiskAttribute")
	s.Must(err)
	bursts := slices.ContainsFunc(calls, func(c ecssim.Call) bool {
		return c.Disk == b.Disk() && c.Code == "" && c.Params["BurstingEnabled"] == "true"
	})
	if d := s.onlyDisk("ledger"); !bursts || d.Tags["team"] != "" {
		t.Errorf("the disk bursts: %v, with tags %v; want that it does, of no team", bursts, d.Tags)
	}
}

func TestSnapshotsAloneAndInAGroupOutliveTheirDisks(t *testing.T) {
	s := newScene(t)
	s.unattachedMayBeCut()
	class := s.Class(atOnce, map[string]string{"type": "cloud_essd", "zoneId": s.Zones()[0]})
	var disks []string
	for _, name := range []string{"one", "two"} {
		s.Claim(name, class, "20Gi")
		b, _ := s.bound(name, soon)
		disks = append(disks, b.Disk())
	}
	cut := s.cut(disks[0])
	groups := csi.NewGroupControllerClient(s.connection())
	var group *csi.CreateVolumeGroupSnapshotResponse
	s.WaitFor("both are cut at once", late, func(ctx context.Context) (ok bool, err error) {
		group, err = groups.CreateVolumeGroupSnapshot(ctx, &csi.CreateVolumeGroupSnapshotRequest{Name: "group-" + s.Namespace, SourceVolumeIds: disks})
		return group.GetGroupSnapshot().GetReadyToUse(), err
	})
	object, err := s.MakeSnapshot(s.Context(), s.Namespace, "alone", "one", disks[0], cut)
	s.Must(err)
	s.Cleanup(func() { s.Must(object.Remove(context.Background())) })
	for _, name := range []string{"one", "two"} {
		s.deleteClaim(name)
	}
	s.Claim("restored", class, "20Gi", func(c *corev1.PersistentVolumeClaim) { c.Spec.DataSource = object.Source() })
	s.awaitEvent("restored", soon, "not ready")
	s.Must(object.Ready(s.Context()))
	s.awaitEvent("restored", soon, "no snapshotHandle yet")
	s.Must(object.Taken(s.Context()))
	if _, d := s.bound("restored", late); d.Source != cut {
		t.Errorf("the disk was made of %q, want %s", d.Source, cut)
	}
	var members []string
	for _, member := range group.GroupSnapshot.Snapshots {
		members = append(members, member.SnapshotId)
	}
	_, err = groups.DeleteVolumeGroupSnapshot(s.Context(),
		&csi.DeleteVolumeGroupSnapshotRequest{GroupSnapshotId: group.GroupSnapshot.GroupSnapshotId, SnapshotIds: members})
	s.Must(err)
}

func TestTheClustersIDIsThatOfItsFirstNamespace(t *testing.T) {
	s := newScene(t)
	first, err := s.Client.CoreV1().Namespaces().Get(s.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	s.Must(err)
	s.Must(underPolicy(s.Context(), s.Lab, string(first.UID)))
	s.restartDriver("--cluster-id=")
	s.Cleanup(func() {
		s.restartDriver()
		s.Must(underPolicy(context.Background(), s.Lab, simulator.ClusterID))
	})
	s.Claim("marked", s.Class(atOnce, essdThenAuto), "20Gi")
	if _, d := s.bound("marked", soon); d.Tags[disk.ClusterTag] != string(first.UID) {
		t.Errorf("the disk has tags %v, want %s to be %s", d.Tags, disk.ClusterTag, first.UID)
	}
	s.deleteClaim("marked")
	s.WaitFor("the disk is gone", late, func(context.Context) (bool, error) { return len(s.disks("marked")) == 0, nil })
}
