package request

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// volumeFor returns the PersistentVolume of a claim for which the driver has made the volume.
func volumeFor(t *testing.T, options Options, class *storagev1.StorageClass, made *csi.Volume) *v1.PersistentVolume {
	t.Helper()
	plan, err := NewPlan(options, testClaim(), class, "node-1")
	if err != nil {
		t.Fatal(err)
	}
	return plan.Request(Inputs{}).PersistentVolume(options, made)
}

func TestNamesOfPersistentVolumes(t *testing.T) {
	tests := []struct {
		source   PVNameSource
		id, want string
	}{
		{VolumeID, "d-bp1", "d-bp1"},
		{VolumeName, "d-bp1", "disk-0f1e"},
		{VolumeID, "/subscriptions/X/disks/y", "disk-0f1e"},
		{VolumeID, "D_1", "disk-0f1e"},
	}
	for _, test := range tests {
		options := testOptions()
		options.PVNameSource = test.source
		pv := volumeFor(t, options, testClass(nil), &csi.Volume{VolumeId: test.id})
		if pv.Name != test.want || pv.Spec.CSI.VolumeHandle != test.id {
			t.Errorf("%s of %s: got %v", test.source, test.id, pv)
		}
		if size := pv.Spec.Capacity[v1.ResourceStorage]; size.Value() != 20*gib {
			t.Errorf("a driver that reports no size made %d bytes", size.Value())
		}
	}
}

func TestAVolumeHasExactlyTheDriversSize(t *testing.T) {
	pv := volumeFor(t, testOptions(), testClass(nil), &csi.Volume{VolumeId: "d-bp1", CapacityBytes: 20*gib + 4096})
	if size := pv.Spec.Capacity[v1.ResourceStorage]; size.Value() != 20*gib+4096 || size.Format != resource.BinarySI {
		t.Errorf("got %s", &size)
	}
}

func TestARetainedVolumeHasNoFinalizer(t *testing.T) {
	class := testClass(nil)
	class.ReclaimPolicy = ptr.To(v1.PersistentVolumeReclaimRetain)
	pv := volumeFor(t, testOptions(), class, &csi.Volume{VolumeId: "d-bp1"})
	if len(pv.Finalizers) != 0 || pv.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimRetain {
		t.Errorf("got %v", pv)
	}
}
