//go:build e2e

package crash

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/test/lab"
)

func TestVolumeDeletedBeforeItsClaimLosesItsDiskOnce(t *testing.T) {
	s := newScene(t)
	s.Must(s.claim(s.Context(), "hasty", atOnce))
	b := s.bound("hasty")
	s.Must(s.Client.CoreV1().PersistentVolumes().Delete(s.Context(), b.Volume.Name, metav1.DeleteOptions{}))
	s.Must(s.deleteClaim(s.Context(), "hasty"))
	s.awaitVolume(b.Volume.Name, "gone", isGone)
	if n := s.count("DeleteVolume"); n != 1 {
		t.Errorf("the driver was asked to delete %d times, want once", n)
	}
}

func TestForeignFinalizerStaysAndOursGoes(t *testing.T) {
	s := newScene(t)
	const other = "example.com/backup"
	s.Must(s.claim(s.Context(), "backed-up", atOnce))
	b := s.bound("backed-up")
	_, err := s.Client.CoreV1().PersistentVolumes().Patch(s.Context(), b.Volume.Name, types.JSONPatchType,
		[]byte(`[{"op":"add","path":"/metadata/finalizers/-","value":"`+other+`"}]`), metav1.PatchOptions{})
	s.Must(err)
	s.Must(s.deleteClaim(s.Context(), "backed-up"))
	s.awaitVolume(b.Volume.Name, "held by the other finalizer alone", func(pv *corev1.PersistentVolume) bool {
		return pv != nil && pv.DeletionTimestamp != nil && slices.Equal(pv.Finalizers, []string{other})
	})
	if disks := s.disks("backed-up"); len(disks) > 0 {
		t.Errorf("disk %s is left", disks[0].ID)
	}
	s.patchVolume(b.Volume.Name, `{"metadata":{"finalizers":[]}}`)
	s.awaitVolume(b.Volume.Name, "gone", isGone)
	if n := s.count("DeleteVolume"); n != 1 {
		t.Errorf("the driver was asked to delete %d times, want once", n)
	}
}

func TestAttachedVolumeIsDeletedWhenItIsDetached(t *testing.T) {
	s := newScene(t)
	s.restartProvisioner("--retry-interval-start=1h", "--retry-interval-max=1h") // only an event makes it try again
	s.Must(s.claim(s.Context(), "attached", atOnce))
	b := s.bound("attached")
	attachments := s.Client.StorageV1().VolumeAttachments()
	meta := metav1.ObjectMeta{Name: "by-the-test"}
	_, err := attachments.Create(s.Context(), &storagev1.VolumeAttachment{ObjectMeta: meta, Spec: storagev1.VolumeAttachmentSpec{
		Attacher: lab.DriverName, NodeName: s.Nodes[0].Name, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &b.Volume.Name},
	}}, metav1.CreateOptions{})
	s.Must(err)
	s.Must(s.deleteClaim(s.Context(), "attached"))
	s.awaitEvent(metav1.NamespaceDefault, b.Volume.Name, "still attached to node "+s.Nodes[0].Name)
	if n := s.count("DeleteVolume"); n > 0 {
		t.Errorf("the driver was asked to delete an attached volume")
	}
	s.Must(attachments.Delete(s.Context(), "by-the-test", metav1.DeleteOptions{}))
	s.awaitVolume(b.Volume.Name, "gone", isGone)
}
