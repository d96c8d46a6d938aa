package provisioner

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/topology"
)

func TestTrimKeepsWhatIsRead(t *testing.T) {
	managed := []metav1.ManagedFieldsEntry{{}}
	pending := testClaim(func(c *v1.PersistentVolumeClaim) {
		c.ManagedFields = managed
		c.Annotations[v1.LastAppliedConfigAnnotation] = "{}"
	})
	bound := testClaim(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName, c.Labels = "d-1", map[string]string{"a": "b"} })
	source := testClaim(func(c *v1.PersistentVolumeClaim) {
		c.Spec.VolumeName, c.Finalizers = "d-2", []string{"kubernetes.io/pvc-protection", cloneFinalizer}
	})
	foreign := testClaim(func(c *v1.PersistentVolumeClaim) { c.Annotations[request.AnnStorageProvisioner] = "other" })
	ours := testVolume("d-1", func(pv *v1.PersistentVolume) {
		pv.Annotations["x"], pv.ManagedFields = "y", managed
		pv.Spec.CSI.VolumeAttributes = map[string]string{"type": "cloud_essd"}
		pv.Spec.NodeAffinity, pv.Spec.StorageClassName = topology.NodeAffinity(made("d-1", 0, "zone-a").volume.AccessibleTopology), "essd"
	})
	alike := ours.DeepCopy()
	theirs := testVolume("d-2", func(pv *v1.PersistentVolume) { pv.Spec.CSI.Driver = "other" })
	n, csiNode := node("node-1", "zone-a")
	n.Annotations, n.ManagedFields = map[string]string{"a": "b"}, managed
	csiNode.Spec.Drivers = append([]storagev1.CSINodeDriver{{Name: "other"}}, csiNode.Spec.Drivers...)
	attachment := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{"a": "b"}},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: driverName, NodeName: "node-1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("d-1")}},
		Status:     storagev1.VolumeAttachmentStatus{Attached: true},
	}
	unassigned := testClaim(func(c *v1.PersistentVolumeClaim) {
		c.ManagedFields = managed
		delete(c.Annotations, request.AnnStorageProvisioner)
		c.Annotations[v1.LastAppliedConfigAnnotation] = "{}"
	})
	trimmed := trim(driverName)
	for _, object := range []any{pending, unassigned, source, alike, bound, foreign, ours, theirs, n, csiNode, attachment, ptr.To(42)} {
		for range 2 { // an object may be trimmed again
			if _, err := trimmed(object); err != nil {
				t.Error(err)
			}
		}
	}
	same := func(what string, got, want any) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	want := testClaim(func(c *v1.PersistentVolumeClaim) { c.Annotations[request.AnnBetaStorageProvisioner] = driverName })
	same("a claim that waits", pending, want)
	same("a claim that nobody was assigned to yet", unassigned, testClaim(func(c *v1.PersistentVolumeClaim) { delete(c.Annotations, request.AnnStorageProvisioner) }))
	same("a bound claim", bound.Spec, v1.PersistentVolumeClaimSpec{VolumeName: "d-1"})
	same("its annotations", bound.Annotations, map[string]string(nil))
	same("a claim that is a source", source.Finalizers, []string{"kubernetes.io/pvc-protection", cloneFinalizer})
	same("its annotations", source.Annotations, map[string]string{request.AnnStorageProvisioner: driverName})
	if ours.Spec.NodeAffinity != alike.Spec.NodeAffinity {
		t.Error("volumes of one zone don't share their affinity")
	}
	same("a claim of another driver", foreign.Spec, v1.PersistentVolumeClaimSpec{})
	if foreign.UID != "0f1e" || foreign.ResourceVersion != "7" || bound.Labels != nil {
		t.Errorf("got %+v, %+v", foreign.ObjectMeta, bound.ObjectMeta)
	}
	if !mayDelete(ours, driverName) || ours.Spec.CSI.VolumeHandle != "d-1" || ours.Spec.StorageClassName != "essd" || request.ClaimUID(ours) != "0f1e" {
		t.Errorf("a volume of ours: %+v", ours)
	}
	if ours.ManagedFields != nil || ours.Annotations["x"] != "" || ours.Spec.CSI.VolumeAttributes != nil || len(zonesOfVolume(ours)) != 1 {
		t.Errorf("a volume of ours: %+v", ours)
	}
	same("a volume of another driver", theirs.Spec, v1.PersistentVolumeSpec{})
	same("a node's labels", n.Labels[topology.ZoneKey], "zone-a")
	if n.Annotations != nil || n.ManagedFields != nil {
		t.Errorf("a node: %+v", n)
	}
	if len(csiNode.Spec.Drivers) != 1 || csiNode.Spec.Drivers[0].Name != driverName {
		t.Errorf("a CSINode: %+v", csiNode.Spec)
	}
	if attachment.Status.Attached || attachment.Annotations != nil || *attachment.Spec.Source.PersistentVolumeName != "d-1" || attachment.Spec.NodeName != "node-1" {
		t.Errorf("an attachment: %+v", attachment)
	}
}
