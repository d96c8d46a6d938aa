package deletion

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/internal/affinity"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
	"github.com/topodisk/topodisk/topology"
)

// deleteVolume deletes the volume first and its PersistentVolume last, so that a crash
// in between leaves a PersistentVolume that says what is to be done. It returns false
// without an error if the volume is not to be deleted after all.
func (c *Controller) deleteVolume(ctx context.Context, cached *v1.PersistentVolume) (deleted bool, err error) {
	if err := c.checkDetached(cached); err != nil {
		return false, err
	}
	pv, err := c.reread(ctx, cached)
	if err != nil || pv == nil {
		return false, err
	}
	secrets, err := c.secrets(ctx, pv)
	if err != nil {
		return false, err
	}
	if err := c.checkShared(ctx, pv); err != nil {
		return false, err
	}
	if err := c.Deleter.delete(affinity.With(ctx, affinityOf(pv)), pv.Spec.CSI.VolumeHandle, secrets); err != nil {
		return false, fmt.Errorf("DeleteVolume %s: %w", pv.Spec.CSI.VolumeHandle, err)
	}
	err = c.Client.CoreV1().PersistentVolumes().Delete(ctx, pv.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pv.UID))})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, err
	}
	return true, c.release(ctx, pv)
}

// affinityOf returns where a PersistentVolume says that its disk is.
func affinityOf(pv *v1.PersistentVolume) affinity.Affinity {
	return affinity.Affinity{
		Regions: topology.AffinityValues(pv, func(key string) bool { return key == topology.RegionKey }), Zones: topology.ZonesOfVolume(pv),
	}
}

// attachedError says that a volume is deleted once it is detached.
type attachedError struct{ pv, node string }

func (e *attachedError) Error() string {
	return fmt.Sprintf("PersistentVolume %s is still attached to node %s; its disk is deleted once it is detached", e.pv, e.node)
}

// checkDetached returns an attachedError that names a node that the volume is attached to.
func (c *Controller) checkDetached(pv *v1.PersistentVolume) error {
	attachments, err := watch.AttachmentsOfVolume(c.Attachments, pv.Name)
	if err != nil {
		return err
	}
	for _, attachment := range attachments {
		if attachment.Spec.Attacher == c.Request.DriverName {
			return &attachedError{pv.Name, attachment.Spec.NodeName}
		}
	}
	return nil
}

// reread returns the PersistentVolume as it is now, or nil if its volume may not be
// deleted any more.
func (c *Controller) reread(ctx context.Context, cached *v1.PersistentVolume) (*v1.PersistentVolume, error) {
	pv, err := c.Client.CoreV1().PersistentVolumes().Get(ctx, cached.Name, metav1.GetOptions{})
	driver := c.Request.DriverName
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	case pv.UID != cached.UID:
		return nil, nil
	case isReleased(pv, driver):
		return pv, c.checkUnclaimed(ctx, pv)
	case mayBeUnused(pv, driver):
		return c.checkUnused(ctx, pv)
	}
	return nil, nil
}

// claimedError says that a volume is kept because a claim is bound to its PersistentVolume, whatever that one's status says.
type claimedError struct{ pv *v1.PersistentVolume }

func (e *claimedError) Error() string {
	ref := e.pv.Spec.ClaimRef
	return fmt.Sprintf("disk %s is kept: PersistentVolume %s is %s, but claim %s/%s is bound to it",
		e.pv.Spec.CSI.VolumeHandle, e.pv.Name, e.pv.Status.Phase, ref.Namespace, ref.Name)
}

// checkUnclaimed returns a claimedError if a claim is bound to the PersistentVolume. The API server is asked: nothing else is as sure
// that no Pod needs the volume any more.
func (c *Controller) checkUnclaimed(ctx context.Context, pv *v1.PersistentVolume) error {
	ref := pv.Spec.ClaimRef
	if ref == nil {
		return nil
	}
	claim, err := c.Client.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	case (claim.UID == ref.UID || ref.UID == "") && claim.Spec.VolumeName == pv.Name:
		return &claimedError{pv}
	}
	return nil
}

// checkUnused returns the PersistentVolume if its claim is without it, and nil if
// Kubernetes is about to bind or release it. One that was not made for its claim may
// have been brought here with data: it is released without its volume.
func (c *Controller) checkUnused(ctx context.Context, pv *v1.PersistentVolume) (*v1.PersistentVolume, error) {
	unused, err := c.isUnused(ctx, pv)
	switch {
	case err != nil || !unused:
		return nil, err
	case !c.Request.IsMadeForClaim(pv):
		return nil, c.removeFinalizer(ctx, pv)
	}
	return pv, nil
}

// isUnused says whether the claim of a PersistentVolume that was never bound exists,
// and is without it.
func (c *Controller) isUnused(ctx context.Context, pv *v1.PersistentVolume) (bool, error) {
	ref := pv.Spec.ClaimRef
	claim, err := c.Client.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, err
	}
	return claim.UID == ref.UID && claim.Spec.VolumeName != pv.Name, nil
}

// secrets returns the data of the Secret that the PersistentVolume names for its
// deletion, or its class if the PersistentVolume is from before provisioners noted one.
// Without it nothing is deleted: other keys may not see the volume, which would be
// taken for deleted, and would be leaked.
func (c *Controller) secrets(ctx context.Context, pv *v1.PersistentVolume) (map[string]string, error) {
	ref, named := request.DeletionSecret(pv)
	if !named {
		var err error
		if ref, err = c.secretOfClass(ctx, pv); err != nil {
			return nil, err
		}
	}
	secrets, err := watch.ReadSecret(ctx, c.Client, ref)
	if watch.NotReadyObject(err) != (watch.Object{}) {
		return nil, fmt.Errorf("the disk of PersistentVolume %s is deleted with the keys of a Secret that is not there or has none: %w; "+
			"make it again, or, if the driver's own keys see the disk, annotate the PersistentVolume with %s and %s, both empty",
			pv.Name, err, request.AnnDeletionSecretName, request.AnnDeletionSecretNamespace)
	}
	return secrets, err
}

// secretOfClass returns the Secret that the PersistentVolume's class names.
func (c *Controller) secretOfClass(ctx context.Context, pv *v1.PersistentVolume) (*v1.SecretReference, error) {
	if pv.Spec.StorageClassName == "" {
		return nil, nil
	}
	class, err := c.Client.StorageV1().StorageClasses().Get(ctx, pv.Spec.StorageClassName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && !request.IsMadeBy(pv, c.Request.DriverName) && pv.Spec.CSI.ControllerPublishSecretRef == nil {
		return nil, nil //nolint:nilnil // one that was made by hand names a class that need not exist
	}
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("class %s is gone, and PersistentVolume %s does not say with which Secret its disk is deleted; "+
			"annotate it with %s and %s, empty for none",
			pv.Spec.StorageClassName, pv.Name, request.AnnDeletionSecretName, request.AnnDeletionSecretNamespace)
	}
	if err != nil {
		return nil, err
	}
	return request.ClassDeletionSecret(class, pv)
}
