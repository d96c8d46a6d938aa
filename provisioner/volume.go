package provisioner

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/topology"
)

// What a PersistentVolume of this provisioner carries. The finalizer and the
// deletion-secret annotations are upstream csi-provisioner's, so that either
// can take over from the other.
const (
	finalizer                  = "external-provisioner.volume.kubernetes.io/finalizer"
	annDeletionSecretName      = "volume.kubernetes.io/provisioner-deletion-secret-name"
	annDeletionSecretNamespace = "volume.kubernetes.io/provisioner-deletion-secret-namespace"
	annModifySecretName        = "volume.kubernetes.io/controller-modify-secret-name"
	annModifySecretNamespace   = "volume.kubernetes.io/controller-modify-secret-namespace"
	annVolumeName              = "topodisk.io/volume-name" // the CSI volume name, by which the disk is tagged
	identityKey                = "storage.kubernetes.io/csiProvisionerIdentity"
)

// saveTimeout bounds one attempt to save a PersistentVolume.
const saveTimeout = 30 * time.Second

// volume returns the PersistentVolume for an order that the driver has made.
func (p *Provisioner) volume(o *order) *v1.PersistentVolume {
	pv := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: p.pvName(o),
			Annotations: map[string]string{
				annProvisionedBy:           p.config.DriverName,
				annVolumeName:              o.request.Name,
				annDeletionSecretName:      "",
				annDeletionSecretNamespace: "",
			},
		},
		Spec: v1.PersistentVolumeSpec{
			Capacity:                      v1.ResourceList{v1.ResourceStorage: capacity(o)},
			AccessModes:                   o.claim.Spec.AccessModes,
			StorageClassName:              o.class.Name,
			PersistentVolumeReclaimPolicy: ptr.Deref(o.class.ReclaimPolicy, v1.PersistentVolumeReclaimDelete),
			MountOptions:                  o.class.MountOptions,
			VolumeMode:                    o.claim.Spec.VolumeMode,
			VolumeAttributesClassName:     attributesClassOf(o.claim),
			ClaimRef: &v1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: o.claim.Namespace, Name: o.claim.Name, UID: o.claim.UID, ResourceVersion: o.claim.ResourceVersion,
			},
			NodeAffinity:           topology.NodeAffinity(o.made.AccessibleTopology),
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: p.csiSource(o)},
		},
	}
	if ref := o.refs.provisioner; ref != nil {
		pv.Annotations[annDeletionSecretName] = ref.Name
		pv.Annotations[annDeletionSecretNamespace] = ref.Namespace
	}
	if ref := o.refs.controllerModify; ref != nil {
		pv.Annotations[annModifySecretName] = ref.Name
		pv.Annotations[annModifySecretNamespace] = ref.Namespace
	}
	if pv.Spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimDelete {
		pv.Finalizers = []string{finalizer}
	}
	return pv
}

// attributesClassOf returns the name of the claim's VolumeAttributesClass, nil
// for none: the empty name is the claim's alone.
func attributesClassOf(claim *v1.PersistentVolumeClaim) *string {
	if ptr.Deref(claim.Spec.VolumeAttributesClassName, "") == "" {
		return nil
	}
	return claim.Spec.VolumeAttributesClassName
}

// pvName returns the volume's ID if it can name an object, and else the CSI
// volume name: an ID is never bent into a name.
func (p *Provisioner) pvName(o *order) string {
	if p.config.PVNameSource == VolumeID && len(validation.IsDNS1123Subdomain(o.made.VolumeId)) == 0 {
		return o.made.VolumeId
	}
	return o.request.Name
}

// capacity returns the volume's size in bytes; a driver that tells none made what was asked for.
func capacity(o *order) resource.Quantity {
	bytes := o.made.CapacityBytes
	if bytes == 0 {
		bytes = o.request.CapacityRange.RequiredBytes
	}
	return *resource.NewQuantity(bytes, resource.BinarySI)
}

func (p *Provisioner) csiSource(o *order) *v1.CSIPersistentVolumeSource {
	attributes := map[string]string{identityKey: p.config.Identity}
	maps.Copy(attributes, o.made.VolumeContext)
	source := &v1.CSIPersistentVolumeSource{
		Driver:                     p.config.DriverName,
		VolumeHandle:               o.made.VolumeId,
		VolumeAttributes:           attributes,
		ControllerPublishSecretRef: o.refs.controllerPublish,
		NodeStageSecretRef:         o.refs.nodeStage,
		NodePublishSecretRef:       o.refs.nodePublish,
		ControllerExpandSecretRef:  o.refs.controllerExpand,
		NodeExpandSecretRef:        o.refs.nodeExpand,
		ReadOnly:                   p.config.ReadOnlyPublish && slices.Equal(o.claim.Spec.AccessModes, []v1.PersistentVolumeAccessMode{v1.ReadOnlyMany}),
	}
	if !isBlock(o.claim) {
		source.FSType = o.fsType
	}
	return source
}

// tellOfTwins tells of a claim that more than one PersistentVolume was made for:
// a driver has made two volumes of one name. Kubernetes binds one of them, and
// releases the others, which are deleted as their policy says.
func (p *Provisioner) tellOfTwins(pv *v1.PersistentVolume) {
	ref := pv.Spec.ClaimRef
	if ref == nil || !isMadeBy(pv, p.config.DriverName) {
		return
	}
	volumes, err := volumesOf(p.volumes, ref.UID)
	if err != nil || len(volumes) < 2 {
		return
	}
	var names []string
	for _, twin := range volumes {
		if isMadeBy(twin, p.config.DriverName) {
			names = append(names, twin.Name)
		}
	}
	if len(names) < 2 || !p.journal.firstTwins(ref.UID) {
		return
	}
	slices.Sort(names)
	p.metrics.duplicates.Inc()
	claim := &v1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}
	p.events.Eventf(claim, v1.EventTypeWarning, reasonTwins,
		"PersistentVolumes %s were all made for claim %s/%s; Kubernetes binds one and releases the others, which go as their reclaim policy says",
		strings.Join(names, " and "), ref.Namespace, ref.Name)
}

// save writes the PersistentVolume. One of the same name is ours only if it is
// for the same claim and the same volume; anything else is an error, and the
// disk is left alone.
func (p *Provisioner) save(ctx context.Context, o *order, pv *v1.PersistentVolume) error {
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	_, err := p.client.CoreV1().PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		err = p.compareSaved(ctx, pv)
	}
	if err != nil {
		p.metrics.saveFailures.Inc()
		return fmt.Errorf("volume %s is made, its PersistentVolume cannot be saved: %w", o.made.VolumeId, err)
	}
	p.journal.rememberVolume(o.claim.UID, pv.Name)
	return nil
}

// nameTakenError says that a PersistentVolume for another claim, or for none, has the name.
type nameTakenError struct{ text string }

func (e *nameTakenError) Error() string { return e.text }

func (p *Provisioner) compareSaved(ctx context.Context, pv *v1.PersistentVolume) error {
	saved, err := p.client.CoreV1().PersistentVolumes().Get(ctx, pv.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	ref := saved.Spec.ClaimRef
	switch {
	case saved.DeletionTimestamp != nil:
		return fmt.Errorf("a PersistentVolume %s is still being deleted", pv.Name)
	case ref == nil || ref.UID != pv.Spec.ClaimRef.UID:
		return &nameTakenError{fmt.Sprintf("PersistentVolume %s exists already and is not for claim %s/%s", pv.Name, pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name)}
	case saved.Spec.CSI == nil || saved.Spec.CSI.Driver != pv.Spec.CSI.Driver || saved.Spec.CSI.VolumeHandle != pv.Spec.CSI.VolumeHandle:
		return fmt.Errorf("PersistentVolume %s exists already with another volume than %s", pv.Name, pv.Spec.CSI.VolumeHandle)
	}
	return nil
}
