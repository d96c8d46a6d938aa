//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/test/lab"
)

func retain(c *storagev1.StorageClass) {
	policy := corev1.PersistentVolumeReclaimRetain
	c.ReclaimPolicy = &policy
}

func TestRetainedDiskSurvivesItsClaim(t *testing.T) {
	s := newScene(t)
	s.Claim("kept", s.Class(atOnce, essdThenAuto, retain), "20Gi")
	b, _ := s.bound("kept", soon)
	s.deleteClaim("kept")
	s.checkRetained(b)
}

func TestPolicyFlippedToRetainKeepsTheDisk(t *testing.T) {
	s := newScene(t)
	s.Claim("kept", s.Class(atOnce, essdThenAuto), "20Gi")
	b, _ := s.bound("kept", soon)
	s.setPolicy(b.Volume.Name, corev1.PersistentVolumeReclaimRetain)
	s.deleteClaim("kept")
	s.checkRetained(b)
}

// checkRetained waits until the volume is Released, and until a volume released after it has lost its disk: by then
// the provisioner has had its turn on both. Then the volume is given up, and its disk must go.
func (s *scene) checkRetained(b lab.Bound) {
	s.Helper()
	s.WaitFor("volume "+b.Volume.Name+" is Released", soon, func(ctx context.Context) (bool, error) {
		pv, err := s.Client.CoreV1().PersistentVolumes().Get(ctx, b.Volume.Name, metav1.GetOptions{})
		return err == nil && pv.Status.Phase == corev1.VolumeReleased, err
	})
	s.Claim("witness", s.Class(atOnce, essdThenAuto), "20Gi")
	witness, _ := s.bound("witness", soon)
	s.deleteClaim("witness")
	s.awaitNoVolume(witness.Volume.Name)
	if d := s.onlyDisk(b.Claim.Name); d.ID != b.Disk() {
		s.Errorf("disk %s is there, want %s", d.ID, b.Disk())
	}
	s.setPolicy(b.Volume.Name, corev1.PersistentVolumeReclaimDelete)
	s.awaitNoVolume(b.Volume.Name)
	if disks := s.disks(b.Claim.Name); len(disks) > 0 {
		s.Errorf("its policy is Delete again and the volume is gone, but disk %s is left", disks[0].ID)
	}
}

func (s *scene) setPolicy(volume string, policy corev1.PersistentVolumeReclaimPolicy) {
	s.Helper()
	patch := fmt.Sprintf(`{"spec":{"persistentVolumeReclaimPolicy":%q}}`, policy)
	_, err := s.Client.CoreV1().PersistentVolumes().Patch(s.Context(), volume, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	s.Must(err)
}

func TestVolumeDeletedBeforeItsClaimLeaksNoDisk(t *testing.T) {
	s := newScene(t)
	s.Claim("hasty", s.Class(atOnce, essdThenAuto), "20Gi")
	b, _ := s.bound("hasty", soon)
	s.Must(s.Client.CoreV1().PersistentVolumes().Delete(s.Context(), b.Volume.Name, metav1.DeleteOptions{}))
	if disks := s.disks("hasty"); len(disks) != 1 {
		t.Fatalf("the claim is still there, but ECS has %d disks for it", len(disks))
	}
	s.deleteClaim("hasty")
	s.awaitNoVolume(b.Volume.Name)
	if disks := s.disks("hasty"); len(disks) > 0 {
		t.Errorf("disk %s is left without a volume", disks[0].ID)
	}
}

func TestClaimDeletedWhileItsDiskIsMadeLeaksNoDisk(t *testing.T) {
	s := newScene(t)
	s.fault(heldReply)
	s.Claim("brief", s.Class(atOnce, essdThenAuto), "20Gi")
	s.awaitDisk("brief")
	s.deleteClaim("brief")
	s.WaitFor("the disk is gone", late, func(context.Context) (bool, error) { return len(s.disks("brief")) == 0, nil })
	if n := succeeded(s.creates("brief")); n != 1 {
		t.Errorf("%d CreateDisk calls succeeded, want 1", n)
	}
}

// The leak of every provisioner that remembers in its process alone: it dies between the disk and its volume, and nobody
// comes back for the claim.
func TestKillAndClaimDeletionDuringCreateLeaksNoDisk(t *testing.T) {
	s := newScene(t)
	class := s.Class(atOnce, essdThenAuto)
	s.fault(heldReply)
	s.Claim("orphan", class, "20Gi")
	s.awaitDisk("orphan")
	s.Topodisk.Kill(lab.ProvisionerName)
	s.deleteClaim("orphan")
	s.WaitFor("the claim is gone", soon, func(ctx context.Context) (bool, error) {
		list, err := s.Client.CoreV1().PersistentVolumeClaims(s.Namespace).List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 0, err
	})
	if volumes, err := s.volumes(s.Context()); err != nil || len(volumes) > 0 {
		t.Fatalf("the kill came too late: %d volumes, %v", len(volumes), err)
	}
	s.Must(s.Topodisk.StartProvisioner(s.Context(), lab.ProvisionerName, quickElection...))
	s.WaitFor("the disk is gone", late, func(context.Context) (bool, error) { return len(s.disks("orphan")) == 0, nil })
	if n := succeeded(s.creates("orphan")); n != 1 {
		t.Errorf("%d CreateDisk calls succeeded, want 1", n)
	}
	s.WaitFor("the journal is empty", soon, func(ctx context.Context) (bool, error) { return s.journalIsEmpty(ctx) })
}

// journalIsEmpty says whether no volume is under way according to the provisioner's journal.
func (s *scene) journalIsEmpty(ctx context.Context) (bool, error) {
	list, err := s.Client.CoreV1().ConfigMaps("kube-system").List(ctx, metav1.ListOptions{LabelSelector: "csi.storage.k8s.io/managed-by=disk-provisioner"})
	if err != nil {
		return false, err
	}
	for _, page := range list.Items {
		if len(page.Data) > 0 {
			return false, fmt.Errorf("left in %s are %d", page.Name, len(page.Data))
		}
	}
	return len(list.Items) > 0, nil
}
