//go:build e2e

package crash

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/test/lab"
)

// Disks that are kept, and disks that go, whatever a record of the journal or a status says.

// use has a node write to a disk: it is attached and detached.
func (s *scene) use(id, zone string) {
	s.Helper()
	node := ""
	for _, n := range s.Nodes {
		if n.Zone == zone {
			node = n.Instance
		}
	}
	_, err := s.driver().ControllerPublishVolume(s.Context(), &csi.ControllerPublishVolumeRequest{
		VolumeId: id, NodeId: node, VolumeCapability: &csi.VolumeCapability{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
		},
	})
	s.Must(err)
	_, err = s.driver().ControllerUnpublishVolume(s.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: node})
	s.Must(err)
}

// record returns the record of a claim that is under way, and its ConfigMap.
func (s *scene) record(uid types.UID) (shard, record string) {
	s.Helper()
	shard = s.awaitEntry(uid)
	configMap, err := s.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(s.Context(), shard, metav1.GetOptions{})
	s.Must(err)
	return shard, configMap.Data[string(uid)]
}

func (s *scene) patchShard(shard, patch string) {
	s.Helper()
	_, err := s.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Patch(s.Context(), shard, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	s.Must(err)
}

// A record comes back when its disk was used, and kept on purpose: a backup was restored, or somebody has edited the journal.
func TestRestoredRecordDeletesNoDisk(t *testing.T) {
	for claim, test := range map[string]struct {
		what string
		next func(s *scene)
	}{
		"after-a-crash": {"before a leader begins", func(s *scene) { s.Must(s.restart(s.Context(), victims{provisioner: true})) }},
		"under-a-leader": {"while a leader works", func(s *scene) {
			s.Must(s.claim(s.Context(), "writes-the-journal", atOnce))
			s.bound("writes-the-journal")
		}},
	} {
		t.Run(test.what, func(t *testing.T) {
			s := newScene(t)
			h := s.withDiskUnheard(claim, atOnce)
			uid, d := s.uid(claim), s.onlyDisk(claim)
			shard, record := s.record(uid)
			h.release(pass)
			b := s.bound(claim)
			s.use(d.ID, d.Zone)
			s.patchVolume(b.Volume.Name, `{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`)
			s.Must(s.deleteClaim(s.Context(), claim))
			s.awaitVolume(b.Volume.Name, "released", func(pv *corev1.PersistentVolume) bool { return pv.Status.Phase == corev1.VolumeReleased })
			s.Must(s.Client.CoreV1().PersistentVolumes().Delete(s.Context(), b.Volume.Name, metav1.DeleteOptions{}))
			s.awaitVolume(b.Volume.Name, "gone", isGone)
			s.Must(s.await(s.Context(), "the journal is empty", 2*limit, s.journalIsEmpty))
			deletes := s.count("DeleteVolume")
			s.Cleanup(func() { s.Must(s.deleteVolume(context.Background(), d.ID)) })

			if strings.HasPrefix(claim, "after") {
				s.kill(victims{provisioner: true})
			}
			s.patchShard(shard, fmt.Sprintf(`{"data":{%q:%q}}`, uid, record))
			test.next(s)
			s.awaitEvent(namespace, claim, "disk "+d.ID+" was made for this claim, and no PersistentVolume stands for it; it is kept")
			s.Must(s.await(s.Context(), "the record is ended", limit, s.journalIsEmpty))
			if left := s.disks(claim); len(left) != 1 || left[0].ID != d.ID {
				t.Errorf("the disks of the claim are %v, want %s", left, d.ID)
			}
			if n := s.count("DeleteVolume"); n != deletes+1 { // which the driver has refused
				t.Errorf("the driver was asked to delete %d times, want once", n-deletes)
			}
			if _, err := s.Client.CoreV1().PersistentVolumes().Get(s.Context(), d.ID, metav1.GetOptions{}); ignoreNotFound(err) != nil || err == nil {
				t.Errorf("the disk has a PersistentVolume again: %v", err)
			}
		})
	}
}

// What somebody removes from the journal or alters there is in it again before a crash can lose a disk.
func TestEditedJournalForgetsNoDisk(t *testing.T) {
	for claim, test := range map[string]struct {
		what, patch string
		elected     bool // by the Lease, whose renewal shows that nobody else leads
	}{
		"pruned":        {"all records are removed", `{"data":null}`, false},
		"pruned-leader": {"all records are removed under the Lease", `{"data":null}`, true},
		"altered":       {"one is altered", `{"data":{"%s":"{}"}}`, false},
	} {
		t.Run(test.what, func(t *testing.T) {
			s := newScene(t)
			if test.elected {
				s.restartProvisioner("--leader-election=true", "--leader-election-lease-duration=12s", "--leader-election-renew-deadline=10s",
					"--leader-election-retry-period=500ms")
			}
			h := s.withDiskUnheard(claim, atOnce)
			uid, restarts := s.uid(claim), s.restarts
			shard, record := s.record(uid)
			if strings.Contains(test.patch, "%s") {
				test.patch = fmt.Sprintf(test.patch, uid)
			}
			s.patchShard(shard, test.patch)
			s.Must(s.await(s.Context(), "the record is there again", limit, func(ctx context.Context) error {
				configMap, err := s.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, shard, metav1.GetOptions{})
				if err == nil && configMap.Data[string(uid)] != record {
					err = fmt.Errorf("it is %q", configMap.Data[string(uid)])
				}
				return err
			}))
			if s.restarts != restarts || s.Topodisk.Ended(lab.ProvisionerName) {
				t.Error("the provisioner has ended by itself")
			}
			s.Must(s.deleteClaim(s.Context(), claim))
			s.awaitNoClaim(claim)
			s.kill(victims{provisioner: true})
			h.release(lose)
			s.Must(s.restart(s.Context(), victims{provisioner: true}))
			s.Must(s.settle(s.Context()))
			if left := s.disks(claim); len(left) > 0 {
				t.Errorf("disk %s is left", left[0].ID)
			}
		})
	}
}

// Whatever code the API server refuses a PersistentVolume with, its disk goes with the claim.
func TestRefusedVolumeOfADeletedClaimLosesItsDisk(t *testing.T) {
	for _, reason := range []metav1.StatusReason{metav1.StatusReasonRequestEntityTooLarge, metav1.StatusReasonForbidden} {
		t.Run(string(reason), func(t *testing.T) {
			s := newScene(t)
			claim := "refused-" + strings.ToLower(string(reason))
			s.refuseVolumes(reason)
			s.Must(s.claim(s.Context(), claim, atOnce))
			s.awaitEvent(namespace, claim, "no more volumes here")
			s.onlyDisk(claim)
			s.Must(s.deleteClaim(s.Context(), claim))
			s.Must(s.await(s.Context(), "the disk is gone", limit, func(context.Context) error {
				if len(s.disks(claim)) > 0 {
					return errors.New("it is there")
				}
				return nil
			}))
			s.Must(s.await(s.Context(), "the journal is empty", limit, s.journalIsEmpty))
		})
	}
}

// A status that says Released is no reason to delete the disk of a bound claim. Kubernetes corrects it, so it is set again and again.
func TestReleasedStatusOfABoundClaimKeepsItsDisk(t *testing.T) {
	s := newScene(t)
	b := s.claimBound("misstated")
	s.Must(s.await(s.Context(), "the disk is kept, and that is said", limit, func(ctx context.Context) error {
		_, err := s.Client.CoreV1().PersistentVolumes().Patch(ctx, b.Volume.Name, types.MergePatchType, []byte(`{"status":{"phase":"Released"}}`),
			metav1.PatchOptions{}, "status")
		if err == nil {
			_, err = s.FindEvent(ctx, metav1.NamespaceDefault, b.Volume.Name, "claim "+namespace+"/misstated is bound to it")
		}
		return err
	}))
	if d := s.onlyDisk("misstated"); d.ID != b.Disk() || s.count("DeleteVolume") > 0 {
		t.Errorf("the driver was asked to delete %d times, and disk %s is there", s.count("DeleteVolume"), d.ID)
	}
}

// A claim that was bound once and is without its volume is Lost: Kubernetes binds no other.
func TestLostClaimGetsNoDisk(t *testing.T) {
	s := newScene(t)
	s.Must(s.MakeClaim(s.Context(), lab.Claim(namespace, "lost", atOnce, "20Gi"), func(c *corev1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{
			"pv.kubernetes.io/bind-completed": "yes", "volume.kubernetes.io/storage-provisioner": lab.DriverName,
			"volume.beta.kubernetes.io/storage-provisioner": lab.DriverName,
		}
	}))
	s.Must(s.await(s.Context(), "the claim is Lost", limit, func(ctx context.Context) error {
		c, err := s.Client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, "lost", metav1.GetOptions{})
		if err == nil && c.Status.Phase != corev1.ClaimLost {
			err = fmt.Errorf("it is %s", c.Status.Phase)
		}
		return err
	}))
	s.kill(victims{provisioner: true})
	s.Must(s.restart(s.Context(), victims{provisioner: true}))
	s.claimBound("witness")
	if n := s.count("CreateVolume"); n != 1 || len(s.disks("lost")) > 0 {
		t.Errorf("the driver was asked %d times, want once; the claim has %d disks", n, len(s.disks("lost")))
	}
	s.Must(s.deleteClaim(s.Context(), "lost"))
	s.awaitNoClaim("lost")
}

// A disk that nobody has used is not kept by policy Retain: its claim gets another volume while it is made.
func TestRetainKeepsNoUnusedDisk(t *testing.T) {
	s := newScene(t)
	class := lab.Class("retains", "Immediate", map[string]string{"type": "cloud_essd"})
	policy := corev1.PersistentVolumeReclaimRetain
	class.ReclaimPolicy = &policy
	s.Must(s.MakeClass(s.Context(), class))
	s.Cleanup(func() {
		s.Must(s.Client.StorageV1().StorageClasses().Delete(context.Background(), "retains", metav1.DeleteOptions{}))
	})
	h := s.withDiskUnheard("changes", "retains")
	s.Must(s.deleteClaim(s.Context(), "changes"))
	s.awaitNoClaim("changes")
	h.release(pass)
	s.Must(s.await(s.Context(), "the disk is gone", limit, func(context.Context) error {
		if len(s.disks("changes")) > 0 {
			return errors.New("it is there")
		}
		return nil
	}))
}

// A PersistentVolume that somebody made by hand goes with its disk if its policy says so, as under csi-provisioner.
func TestStaticVolumeGoesWithItsDisk(t *testing.T) {
	for claim, test := range map[string]struct {
		what   string
		change func(*corev1.PersistentVolume)
		first  bool // the PersistentVolume is deleted before its claim
		kept   bool
	}{
		"static":       {what: "released", change: func(*corev1.PersistentVolume) {}},
		"static-first": {what: "deleted before its claim", change: func(*corev1.PersistentVolume) {}, first: true},
		"static-upstream": {what: "with the finalizer of csi-provisioner", change: func(pv *corev1.PersistentVolume) {
			pv.Finalizers = []string{"external-provisioner.volume.kubernetes.io/finalizer"}
		}, first: true},
		"static-retained": {what: "retained", change: func(pv *corev1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		}, kept: true},
	} {
		t.Run(test.what, func(t *testing.T) {
			s := newScene(t)
			made, err := s.driver().CreateVolume(s.Context(), &csi.CreateVolumeRequest{
				Name: "by-hand-" + claim, CapacityRange: &csi.CapacityRange{RequiredBytes: 20 << 30},
				Parameters: map[string]string{"type": "cloud_essd", "csi.storage.k8s.io/pvc/namespace": namespace, "csi.storage.k8s.io/pvc/name": claim},
				VolumeCapabilities: []*csi.VolumeCapability{{
					AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
					AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
				}},
				AccessibilityRequirements: &csi.TopologyRequirement{Requisite: []*csi.Topology{
					{Segments: map[string]string{"topology.kubernetes.io/zone": s.Zones()[0]}}}},
			})
			s.Must(err)
			id := made.Volume.VolumeId
			pv := staticVolume(claim, id)
			pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
			test.change(pv)
			volumes := s.Client.CoreV1().PersistentVolumes()
			_, err = volumes.Create(s.Context(), pv, metav1.CreateOptions{})
			s.Must(err)
			s.Must(s.MakeClaim(s.Context(), lab.Claim(namespace, claim, "by-hand", "20Gi"), func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = claim }))
			s.awaitVolume(claim, "bound, and has the finalizer if its policy is Delete", func(pv *corev1.PersistentVolume) bool {
				return pv.Status.Phase == corev1.VolumeBound && (test.kept || strings.Contains(strings.Join(pv.Finalizers, " "), "external-provisioner"))
			})
			if test.first {
				s.Must(volumes.Delete(s.Context(), claim, metav1.DeleteOptions{}))
			}
			s.Must(s.deleteClaim(s.Context(), claim))
			if test.kept {
				s.awaitVolume(claim, "released", func(pv *corev1.PersistentVolume) bool { return pv.Status.Phase == corev1.VolumeReleased })
				s.deleteBoundAfter("witness-of-" + claim)
				if len(s.disks(claim)) != 1 {
					t.Errorf("there are %d disks, want 1", len(s.disks(claim)))
				}
				s.Must(volumes.Delete(s.Context(), claim, metav1.DeleteOptions{}))
				s.Must(s.deleteVolume(s.Context(), id))
			}
			s.awaitVolume(claim, "gone", isGone)
			if left := s.disks(claim); len(left) > 0 {
				t.Errorf("disk %s is left", left[0].ID)
			}
		})
	}
}
