//go:build e2e

package crash

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/test/lab"
)

// P3: somebody has made a second PersistentVolume of a disk, and a claim is bound to it.
func TestDiskGoesWithItsLastVolume(t *testing.T) {
	s := newScene(t)
	s.restartProvisioner("--retry-interval-start=1h", "--retry-interval-max=1h") // only an event makes it try again
	s.Must(s.claim(s.Context(), "shared", atOnce))
	b := s.bound("shared")
	volumes := s.Client.CoreV1().PersistentVolumes()
	_, err := volumes.Create(s.Context(), staticVolume("rescued", b.Disk()), metav1.CreateOptions{})
	s.Must(err)
	s.Must(s.MakeClaim(s.Context(), lab.Claim(namespace, "second", "by-hand", "20Gi"), func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "rescued" }))
	s.awaitVolume("rescued", "bound", func(pv *corev1.PersistentVolume) bool { return pv.Status.Phase == corev1.VolumeBound })

	s.Must(s.deleteClaim(s.Context(), "shared"))
	s.awaitVolume(b.Volume.Name, "released, or gone", func(pv *corev1.PersistentVolume) bool {
		return pv == nil || pv.Status.Phase == corev1.VolumeReleased
	})
	s.deleteBoundAfter("witness")
	s.awaitVolume(b.Volume.Name, "there", func(pv *corev1.PersistentVolume) bool { return pv != nil })
	s.awaitEvent("default", b.Volume.Name, "PersistentVolume rescued (Bound, claim "+namespace+"/second)")
	if d := s.onlyDisk("shared"); d.ID != b.Disk() {
		t.Errorf("disk %s is there, want %s", d.ID, b.Disk())
	}

	s.Must(s.deleteClaim(s.Context(), "second"))
	s.Must(volumes.Delete(s.Context(), "rescued", metav1.DeleteOptions{}))
	s.awaitVolume(b.Volume.Name, "gone", isGone)
	if disks := s.disks("shared"); len(disks) > 0 {
		t.Errorf("disk %s is left", disks[0].ID)
	}
}

// deleteBoundAfter makes a claim and deletes it: the provisioner has by then had its turn on what was released before.
func (s *scene) deleteBoundAfter(claim string) {
	s.Helper()
	s.Must(s.claim(s.Context(), claim, atOnce))
	s.deleteBound(claim)
}
