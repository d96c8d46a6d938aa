package request

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Annotations of claims that Kubernetes and a provisioner write for each other.
const (
	AnnStorageProvisioner     = "volume.kubernetes.io/storage-provisioner"
	AnnBetaStorageProvisioner = "volume.beta.kubernetes.io/storage-provisioner"
	AnnSelectedNode           = "volume.kubernetes.io/selected-node"
	AnnMigratedTo             = "pv.kubernetes.io/migrated-to"
	annBindCompleted          = "pv.kubernetes.io/bind-completed"
)

// CloneFinalizer keeps a claim while a volume is made of its volume, upstream csi-provisioner's.
const CloneFinalizer = "provisioner.storage.kubernetes.io/cloning-protection"

// namingAnnotations are the annotations of claims that are read, all of which are names: the cache keeps no others.
var namingAnnotations = []string{
	AnnStorageProvisioner, AnnBetaStorageProvisioner, AnnSelectedNode, AnnMigratedTo, annBindCompleted, v1.BetaStorageClassAnnotation,
}

// ProvisionerOf returns the name of the provisioner that Kubernetes assigned to the claim.
func ProvisionerOf(claim *v1.PersistentVolumeClaim) string {
	if name, ok := claim.Annotations[AnnStorageProvisioner]; ok {
		return name
	}
	return claim.Annotations[AnnBetaStorageProvisioner]
}

// IsOurs says whether the claim is for this driver and has no volume yet.
func IsOurs(claim *v1.PersistentVolumeClaim, driver string) bool {
	return ProvisionerOf(claim) == driver && claim.Spec.VolumeName == ""
}

// ClassName returns the name of the claim's class, nothing for none. An old claim
// names it by annotation, which takes precedence, as in Kubernetes.
func ClassName(claim *v1.PersistentVolumeClaim) string {
	if name, ok := claim.Annotations[v1.BetaStorageClassAnnotation]; ok {
		return name
	}
	return ptr.Deref(claim.Spec.StorageClassName, "")
}

// NeedsVolume says whether the claim has no volume and can get one: it is not being deleted, and has lost none.
func NeedsVolume(claim *v1.PersistentVolumeClaim) bool {
	return claim.DeletionTimestamp == nil && claim.Spec.VolumeName == "" && !HasLostVolume(claim)
}

// HasLostVolume says whether the claim was bound to a volume that it is without now: Kubernetes binds it to no other.
func HasLostVolume(claim *v1.PersistentVolumeClaim) bool {
	_, wasBound := claim.Annotations[annBindCompleted]
	return claim.Status.Phase == v1.ClaimLost || wasBound && claim.Spec.VolumeName == ""
}

// ShouldProvision says whether a first attempt may be made for the claim: it needs a volume, and has no data source of another kind, for
// that kind's populator makes its volume.
func ShouldProvision(claim *v1.PersistentVolumeClaim) bool {
	return NeedsVolume(claim) && !HasPopulator(claim)
}

// DataSource returns what the claim's volume is to be filled from, or nil.
func DataSource(claim *v1.PersistentVolumeClaim) *v1.TypedObjectReference {
	if claim.Spec.DataSourceRef != nil {
		return claim.Spec.DataSourceRef
	}
	if source := claim.Spec.DataSource; source != nil {
		return &v1.TypedObjectReference{APIGroup: source.APIGroup, Kind: source.Kind, Name: source.Name}
	}
	return nil
}

// HasPopulator says whether the claim's data source is neither a claim nor a
// snapshot, so that a volume populator makes its volume.
func HasPopulator(claim *v1.PersistentVolumeClaim) bool {
	source := DataSource(claim)
	if source == nil {
		return false
	}
	switch group := ptr.Deref(source.APIGroup, ""); {
	case group == "" && source.Kind == "PersistentVolumeClaim":
		return false
	case group == "snapshot.storage.k8s.io" && source.Kind == "VolumeSnapshot":
		return false
	}
	return true
}

// AttributesClass returns the name of the claim's VolumeAttributesClass, nil for
// none: only a claim may have an empty name there, a PersistentVolume may not.
func AttributesClass(claim *v1.PersistentVolumeClaim) *string {
	if ptr.Deref(claim.Spec.VolumeAttributesClassName, "") == "" {
		return nil
	}
	return claim.Spec.VolumeAttributesClassName
}
