package deletion

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
	"github.com/topodisk/topodisk/provisioner/request"
)

func TestPredicates(t *testing.T) {
	now := ptr.To(metav1.Now())
	tests := map[string]struct {
		change   func(*v1.PersistentVolume)
		delete   bool
		released bool
		guard    bool // by the finalizer that it lacks
	}{
		"released":                      {change: func(*v1.PersistentVolume) {}, delete: true},
		"released and being deleted":    {change: func(pv *v1.PersistentVolume) { pv.DeletionTimestamp = now }, delete: true},
		"being deleted, no longer ours": {change: func(pv *v1.PersistentVolume) { pv.DeletionTimestamp, pv.Finalizers = now, nil }},
		"bound":                         {change: func(pv *v1.PersistentVolume) { pv.Status.Phase = v1.VolumeBound }},
		"bound and being deleted":       {change: func(pv *v1.PersistentVolume) { pv.Status.Phase, pv.DeletionTimestamp = v1.VolumeBound, now }},
		"bound, from before finalizers": {change: func(pv *v1.PersistentVolume) { pv.Status.Phase, pv.Finalizers = v1.VolumeBound, nil }, guard: true},
		"bound, retained, from before finalizers": {change: func(pv *v1.PersistentVolume) {
			pv.Status.Phase, pv.Finalizers, pv.Spec.PersistentVolumeReclaimPolicy = v1.VolumeBound, nil, v1.PersistentVolumeReclaimRetain
		}},
		"bound, being deleted, from before finalizers": {change: func(pv *v1.PersistentVolume) {
			pv.Status.Phase, pv.Finalizers, pv.DeletionTimestamp = v1.VolumeBound, nil, now
		}},
		"bound, static, without finalizer": {change: func(pv *v1.PersistentVolume) {
			pv.Status.Phase, pv.Finalizers, pv.Annotations = v1.VolumeBound, nil, nil
		}, guard: true},
		"static, retained and being deleted": {change: func(pv *v1.PersistentVolume) {
			pv.Annotations, pv.Spec.PersistentVolumeReclaimPolicy, pv.DeletionTimestamp = nil, v1.PersistentVolumeReclaimRetain, now
		}, released: true},
		"static, for any claim, and being deleted": {change: func(pv *v1.PersistentVolume) {
			pv.Annotations, pv.Spec.ClaimRef, pv.Status.Phase, pv.DeletionTimestamp = nil, nil, v1.VolumeAvailable, now
		}, released: true},
		"available": {change: func(pv *v1.PersistentVolume) { pv.Status.Phase = v1.VolumeAvailable }},
		"failed":    {change: func(pv *v1.PersistentVolume) { pv.Status.Phase = v1.VolumeFailed }},
		"retained": {change: func(pv *v1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimRetain
		}},
		"retained and being deleted": {change: func(pv *v1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy, pv.DeletionTimestamp = v1.PersistentVolumeReclaimRetain, now
		}, released: true},
		"recycled": {change: func(pv *v1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimRecycle
		}},
		"static":            {change: func(pv *v1.PersistentVolume) { pv.Annotations = nil }, delete: true},
		"made by another":   {change: func(pv *v1.PersistentVolume) { pv.Annotations[request.AnnProvisionedBy] = "other" }},
		"of another driver": {change: func(pv *v1.PersistentVolume) { pv.Spec.CSI.Driver = "other" }},
		"no CSI volume":     {change: func(pv *v1.PersistentVolume) { pv.Spec.CSI = nil }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pv := provisionertest.Volume("d-bp1", test.change)
			if got := isReleased(pv, provisionertest.DriverName); got != test.delete {
				t.Errorf("isReleased: %v", got)
			}
			if got := mayRelease(pv, provisionertest.DriverName); got != test.released {
				t.Errorf("mayRelease: %v", got)
			}
			if got := needsFinalizer(pv, provisionertest.DriverName); got != test.guard {
				t.Errorf("needsFinalizer: %v", got)
			}
		})
	}
}
