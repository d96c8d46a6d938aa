package provisioner

import (
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// trim returns what drops what nobody here reads before an object enters a
// cache: memory grows with every claim and volume of the cluster, also those of
// other drivers.
func trim(driver string) func(any) (any, error) {
	return func(object any) (any, error) {
		accessor, err := meta.Accessor(object)
		if err != nil {
			return object, nil //nolint:nilerr // A tombstone has nothing to be trimmed.
		}
		accessor.SetManagedFields(nil)
		switch o := object.(type) {
		case *v1.PersistentVolumeClaim:
			trimClaim(o, driver)
		case *v1.PersistentVolume:
			trimVolume(o, driver)
		case *storagev1.VolumeAttachment:
			trimMeta(&o.ObjectMeta)
			o.Status = storagev1.VolumeAttachmentStatus{}
			o.Spec.Source.InlineVolumeSpec = nil
		case *storagev1.CSINode:
			trimMeta(&o.ObjectMeta)
			o.Spec.Drivers = onlyDriver(o.Spec.Drivers, driver)
		case *metav1.PartialObjectMetadata: // a Node
			labels := o.Labels
			trimMeta(&o.ObjectMeta)
			o.Labels = labels
		}
		return object, nil
	}
}

// trimMeta keeps what identifies an object.
func trimMeta(m *metav1.ObjectMeta, annotations ...string) {
	kept := map[string]string(nil)
	for _, key := range annotations {
		if value, ok := m.Annotations[key]; ok {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[key] = value
		}
	}
	*m = metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp,
		Finalizers: m.Finalizers, Annotations: kept,
	}
}

// trimClaim keeps all of a claim that has no volume yet and is ours or nobody's
// so far, for its order is made from it. It gives such a claim the older of the two annotations that
// name its provisioner, the only one that the library knows.
func trimClaim(claim *v1.PersistentVolumeClaim, driver string) {
	if isOurs(claim, driver) {
		delete(claim.Annotations, v1.LastAppliedConfigAnnotation)
		claim.Annotations[annBetaStorageProvisioner] = assigned(claim)
		return
	}
	if assigned(claim) == "" && claim.Spec.VolumeName == "" {
		delete(claim.Annotations, v1.LastAppliedConfigAnnotation)
		return
	}
	trimMeta(&claim.ObjectMeta, annStorageProvisioner, annBetaStorageProvisioner, annMigratedTo)
	claim.Spec = v1.PersistentVolumeClaimSpec{VolumeName: claim.Spec.VolumeName}
	claim.Status = v1.PersistentVolumeClaimStatus{}
}

func trimVolume(pv *v1.PersistentVolume, driver string) {
	trimMeta(&pv.ObjectMeta, annProvisionedBy, annVolumeName)
	if pv.Spec.CSI == nil || pv.Spec.CSI.Driver != driver {
		pv.Spec, pv.Status = v1.PersistentVolumeSpec{}, v1.PersistentVolumeStatus{}
		return
	}
	spec := v1.PersistentVolumeSpec{
		PersistentVolumeReclaimPolicy: pv.Spec.PersistentVolumeReclaimPolicy,
		StorageClassName:              pv.Spec.StorageClassName,
		NodeAffinity:                  pv.Spec.NodeAffinity,
		PersistentVolumeSource:        v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: pv.Spec.CSI.VolumeHandle}},
	}
	if ref := pv.Spec.ClaimRef; ref != nil {
		spec.ClaimRef = &v1.ObjectReference{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}
	}
	pv.Spec, pv.Status = spec, v1.PersistentVolumeStatus{Phase: pv.Status.Phase}
}

func onlyDriver(drivers []storagev1.CSINodeDriver, name string) []storagev1.CSINodeDriver {
	for _, d := range drivers {
		if d.Name == name {
			return []storagev1.CSINodeDriver{d}
		}
	}
	return nil
}
