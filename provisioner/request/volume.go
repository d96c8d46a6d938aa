package request

import (
	"maps"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/topology"
)

// What a PersistentVolume of this provisioner carries. The finalizer and the
// annotations of Secrets are upstream csi-provisioner's, so that either can take
// over from the other.
const (
	Finalizer                  = "external-provisioner.volume.kubernetes.io/finalizer"
	AnnProvisionedBy           = "pv.kubernetes.io/provisioned-by"
	AnnVolumeName              = "topodisk.io/volume-name" // the CSI volume name, by which the disk is tagged
	AnnDeletionSecretName      = "volume.kubernetes.io/provisioner-deletion-secret-name"
	AnnDeletionSecretNamespace = "volume.kubernetes.io/provisioner-deletion-secret-namespace"
	annModifySecretName        = "volume.kubernetes.io/controller-modify-secret-name"
	annModifySecretNamespace   = "volume.kubernetes.io/controller-modify-secret-namespace"
	// IdentityKey is the attribute that says which process has saved it; a cache has it as an annotation.
	IdentityKey = "storage.kubernetes.io/csiProvisionerIdentity"
)

// PersistentVolume describes the volume that the driver has made for the request.
func (r *Request) PersistentVolume(options Options, made *csi.Volume) *v1.PersistentVolume {
	pv := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: r.pvName(options, made),
			Annotations: map[string]string{
				AnnProvisionedBy:           options.DriverName,
				AnnVolumeName:              r.Create.Name,
				AnnDeletionSecretName:      "",
				AnnDeletionSecretNamespace: "",
			},
		},
		Spec: v1.PersistentVolumeSpec{
			Capacity:                      v1.ResourceList{v1.ResourceStorage: r.capacity(made)},
			AccessModes:                   withoutRepetitions(r.Claim.Spec.AccessModes),
			StorageClassName:              r.Class.Name,
			PersistentVolumeReclaimPolicy: ptr.Deref(r.Class.ReclaimPolicy, v1.PersistentVolumeReclaimDelete),
			MountOptions:                  r.Class.MountOptions,
			VolumeMode:                    r.Claim.Spec.VolumeMode,
			VolumeAttributesClassName:     AttributesClass(r.Claim),
			ClaimRef: &v1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: r.Claim.Namespace, Name: r.Claim.Name, UID: r.Claim.UID, ResourceVersion: r.Claim.ResourceVersion,
			},
			NodeAffinity:           topology.NodeAffinity(made.AccessibleTopology),
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: r.csiSource(options, made)},
		},
	}
	if ref := r.Secrets[ProvisionerSecret]; ref != nil {
		pv.Annotations[AnnDeletionSecretName] = ref.Name
		pv.Annotations[AnnDeletionSecretNamespace] = ref.Namespace
	}
	if ref := r.Secrets[controllerModifySecret]; ref != nil {
		pv.Annotations[annModifySecretName] = ref.Name
		pv.Annotations[annModifySecretNamespace] = ref.Namespace
	}
	if pv.Spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimDelete {
		pv.Finalizers = []string{Finalizer}
	}
	return pv
}

// pvName returns the volume's ID if it is a valid object name, and else the CSI
// volume name: an ID is never altered to become one.
func (r *Request) pvName(options Options, made *csi.Volume) string {
	if options.PVNameSource == VolumeID && len(validation.IsDNS1123Subdomain(made.VolumeId)) == 0 {
		return made.VolumeId
	}
	return r.Create.Name
}

// capacity returns the volume's size; a driver that reports none made what was asked for.
func (r *Request) capacity(made *csi.Volume) resource.Quantity {
	bytes := made.CapacityBytes
	if bytes == 0 {
		bytes = r.Create.CapacityRange.RequiredBytes
	}
	return *resource.NewQuantity(bytes, resource.BinarySI)
}

// isReadOnlyMany says whether a claim has this access mode alone.
func isReadOnlyMany(claim *v1.PersistentVolumeClaim) bool {
	return slices.Equal(withoutRepetitions(claim.Spec.AccessModes), []v1.PersistentVolumeAccessMode{v1.ReadOnlyMany})
}

func (r *Request) csiSource(options Options, made *csi.Volume) *v1.CSIPersistentVolumeSource {
	attributes := map[string]string{IdentityKey: options.Identity}
	maps.Copy(attributes, made.VolumeContext)
	source := &v1.CSIPersistentVolumeSource{
		Driver:                     options.DriverName,
		VolumeHandle:               made.VolumeId,
		VolumeAttributes:           attributes,
		ControllerPublishSecretRef: r.Secrets[controllerPublishSecret],
		NodeStageSecretRef:         r.Secrets[nodeStageSecret],
		NodePublishSecretRef:       r.Secrets[nodePublishSecret],
		ControllerExpandSecretRef:  r.Secrets[controllerExpandSecret],
		NodeExpandSecretRef:        r.Secrets[nodeExpandSecret],
		ReadOnly:                   options.ReadOnlyPublish && isReadOnlyMany(r.Claim),
	}
	if !isBlock(r.Claim) {
		source.FSType = r.FSType
	}
	return source
}

// IsOfDriver says whether the PersistentVolume's volume is the driver's to delete: it was provisioned for the driver, or somebody made the
// PersistentVolume by hand. This is upstream csi-provisioner's rule.
func IsOfDriver(pv *v1.PersistentVolume, driver string) bool {
	by, provisioned := pv.Annotations[AnnProvisionedBy]
	return pv.Spec.CSI != nil && pv.Spec.CSI.Driver == driver && (!provisioned || by == driver)
}

// IsMadeBy says whether the PersistentVolume was provisioned for the driver.
func IsMadeBy(pv *v1.PersistentVolume, driver string) bool {
	return pv.Annotations[AnnProvisionedBy] == driver && pv.Spec.CSI != nil && pv.Spec.CSI.Driver == driver
}

// HasFinalizer says whether the PersistentVolume stays until a provisioner has
// deleted its volume.
func HasFinalizer(pv *v1.PersistentVolume) bool {
	return slices.Contains(pv.Finalizers, Finalizer)
}

// ClaimUID returns the UID of the claim that the PersistentVolume names, if any.
func ClaimUID(pv *v1.PersistentVolume) types.UID {
	if pv.Spec.ClaimRef == nil {
		return ""
	}
	return pv.Spec.ClaimRef.UID
}

// IsSavedHere says whether this process has saved the PersistentVolume, as a cache shows it.
func (o Options) IsSavedHere(pv *v1.PersistentVolume) bool {
	return pv.Annotations[IdentityKey] == o.Identity
}

// IsMadeForClaim says whether the PersistentVolume was made for the claim that it names.
func (o Options) IsMadeForClaim(pv *v1.PersistentVolume) bool {
	ref := pv.Spec.ClaimRef
	name, err := o.VolumeName(&v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}})
	return err == nil && (pv.Annotations[AnnVolumeName] == name || pv.Name == name)
}
