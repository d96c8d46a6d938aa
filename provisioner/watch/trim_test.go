package watch

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/topology"
)

func TestTrimKeepsWhatIsRead(t *testing.T) {
	managed := []metav1.ManagedFieldsEntry{{}}
	pending := provisionertest.Claim(func(c *v1.PersistentVolumeClaim) {
		c.ManagedFields = managed
		c.Annotations[v1.LastAppliedConfigAnnotation] = "{}"
	})
	bound := provisionertest.Claim(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName, c.Labels = "d-1", map[string]string{"a": "b"} })
	source := provisionertest.Claim(func(c *v1.PersistentVolumeClaim) {
		c.Spec.VolumeName, c.Finalizers = "d-2", []string{"kubernetes.io/pvc-protection", request.CloneFinalizer}
	})
	foreign := provisionertest.Claim(func(c *v1.PersistentVolumeClaim) { c.Annotations[request.AnnStorageProvisioner] = "other" })
	ours := provisionertest.Volume("d-1", func(pv *v1.PersistentVolume) {
		pv.Annotations["x"], pv.ManagedFields = "y", managed
		pv.Spec.CSI.VolumeAttributes = map[string]string{"type": "cloud_essd"}
		pv.Spec.NodeAffinity = topology.NodeAffinity([]*csi.Topology{{Segments: map[string]string{topology.WellKnownZoneKey: "zone-a"}}})
		pv.Spec.StorageClassName = "essd"
		pv.Status.LastPhaseTransitionTime = ptr.To(metav1.Now())
	})
	alike, used := ours.DeepCopy(), ours.DeepCopy()
	used.Status.Phase = v1.VolumeBound
	theirs := provisionertest.Volume("d-2", func(pv *v1.PersistentVolume) { pv.Spec.CSI.Driver = "other" })
	n := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{topology.ZoneKey: "zone-a"}}}
	csiNode := &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1"},
		Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: provisionertest.DriverName, NodeID: "i-node-1", TopologyKeys: []string{topology.ZoneKey}}}},
	}
	n.Annotations, n.ManagedFields = map[string]string{"a": "b"}, managed
	csiNode.Spec.Drivers = append([]storagev1.CSINodeDriver{{Name: "other"}}, csiNode.Spec.Drivers...)
	attachment := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{"a": "b"}},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: provisionertest.DriverName, NodeName: "node-1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("d-1")},
		},
		Status: storagev1.VolumeAttachmentStatus{Attached: true},
	}
	unassigned := provisionertest.Claim(func(c *v1.PersistentVolumeClaim) {
		c.ManagedFields = managed
		delete(c.Annotations, request.AnnStorageProvisioner)
		c.Annotations[v1.LastAppliedConfigAnnotation] = "{}"
	})
	trimmed := newTrimmer(request.Options{DriverName: provisionertest.DriverName}).trim
	for _, object := range []any{pending, unassigned, source, alike, bound, foreign, ours, used, theirs, n, csiNode, attachment, ptr.To(42)} {
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
	want := provisionertest.Claim(func(c *v1.PersistentVolumeClaim) {
		c.Annotations[request.AnnBetaStorageProvisioner] = provisionertest.DriverName
		delete(c.Annotations, "team")
	})
	same("a claim that waits", pending, want)
	want = provisionertest.Claim(func(c *v1.PersistentVolumeClaim) {
		delete(c.Annotations, request.AnnStorageProvisioner)
		delete(c.Annotations, "team")
	})
	same("a claim that nobody was assigned to yet", unassigned, want)
	same("a bound claim", bound.Spec, v1.PersistentVolumeClaimSpec{VolumeName: "d-1"})
	same("its annotations", bound.Annotations, map[string]string(nil))
	same("a claim that is a source", source.Finalizers, []string{request.CloneFinalizer})
	same("its annotations", source.Annotations, map[string]string{request.AnnStorageProvisioner: provisionertest.DriverName})
	if ours.Spec.NodeAffinity != alike.Spec.NodeAffinity {
		t.Error("volumes of one zone don't share their affinity")
	}
	same("a claim of another driver", foreign.Spec, v1.PersistentVolumeClaimSpec{})
	if foreign.UID != "0f1e" || foreign.ResourceVersion != "7" || bound.Labels != nil {
		t.Errorf("got %+v, %+v", foreign.ObjectMeta, bound.ObjectMeta)
	}
	isDeletable := request.IsMadeBy(ours, provisionertest.DriverName) && request.HasFinalizer(ours) && ours.Status.Phase == v1.VolumeReleased &&
		ours.Spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimDelete
	if !isDeletable || ours.Spec.CSI.VolumeHandle != "d-1" || ours.Spec.StorageClassName != "essd" || request.ClaimUID(ours) != "0f1e" {
		t.Errorf("a volume of ours: %+v", ours)
	}
	if ours.ManagedFields != nil || ours.Annotations["x"] != "" || ours.Spec.CSI.VolumeAttributes != nil || ours.Spec.NodeAffinity == nil {
		t.Errorf("a volume of ours: %+v", ours)
	}
	if ours.Status.LastPhaseTransitionTime == nil || used.Status.LastPhaseTransitionTime != nil {
		t.Errorf("since when a volume is released: %+v; in use: %+v", ours.Status, used.Status)
	}
	same("a volume of another driver", theirs.Spec, v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{
		CSI: &v1.CSIPersistentVolumeSource{Driver: "other", VolumeHandle: "d-2"},
	}})
	same("a node's labels", n.Labels[topology.ZoneKey], "zone-a")
	if n.Annotations != nil || n.ManagedFields != nil {
		t.Errorf("a node: %+v", n)
	}
	if len(csiNode.Spec.Drivers) != 1 || csiNode.Spec.Drivers[0].Name != provisionertest.DriverName {
		t.Errorf("a CSINode: %+v", csiNode.Spec)
	}
	if attachment.Status.Attached || attachment.Annotations != nil || *attachment.Spec.Source.PersistentVolumeName != "d-1" || attachment.Spec.NodeName != "node-1" {
		t.Errorf("an attachment: %+v", attachment)
	}
}

// A tenant chooses what no provisioner is to look at, too: Kubernetes bounds neither volumeName nor the number of finalizers.
func TestATrimmedClaimOfNobodyIsBounded(t *testing.T) {
	long, finalizers := strings.Repeat("x", 200<<10), []string{request.CloneFinalizer}
	for n := range 1_000 {
		finalizers = append(finalizers, fmt.Sprint("example.com/", n))
	}
	trimmed := newTrimmer(request.Options{DriverName: provisionertest.DriverName}).trim
	for name, change := range map[string]func(*v1.PersistentVolumeClaim){
		"the provisioner":         func(c *v1.PersistentVolumeClaim) { c.Annotations[request.AnnStorageProvisioner] = long },
		"the old provisioner":     func(c *v1.PersistentVolumeClaim) { c.Annotations[request.AnnBetaStorageProvisioner] = long },
		"the driver":              func(c *v1.PersistentVolumeClaim) { c.Annotations[request.AnnMigratedTo] = long },
		"the volume":              func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = long },
		"finalizers":              func(c *v1.PersistentVolumeClaim) { c.Finalizers = finalizers },
		"a volume and finalizers": func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName, c.Finalizers = long, finalizers },
	} {
		claim := provisionertest.Claim(func(c *v1.PersistentVolumeClaim) { c.Annotations[request.AnnStorageProvisioner] = "other" }, change)
		if _, err := trimmed(claim); err != nil {
			t.Error(err)
		}
		if kept, err := json.Marshal(claim); err != nil || len(kept) > 4<<10 {
			t.Errorf("%s: %d bytes are kept, %v", name, len(kept), err)
		}
		if len(claim.Finalizers) > 0 && !slices.Equal(claim.Finalizers, []string{request.CloneFinalizer}) {
			t.Errorf("%s: %d finalizers are kept", name, len(claim.Finalizers))
		}
	}
}
