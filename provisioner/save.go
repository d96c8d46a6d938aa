package provisioner

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/topodisk/topodisk/provisioner/attempt"
	"github.com/topodisk/topodisk/provisioner/request"
)

// saveTimeout bounds one attempt to save a PersistentVolume.
const saveTimeout = 30 * time.Second

// saveVolume creates the PersistentVolume. One of the same name that exists is a success
// only if it is for the same claim and the same volume.
func (p *Provisioner) saveVolume(ctx context.Context, a attempt.SaveVolume) attempt.VolumeSaved {
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	pv := a.Request.PersistentVolume(p.config.Options, a.Volume)
	_, err := p.client.CoreV1().PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		err = checkSaved(ctx, p.client, pv)
	}
	if err == nil {
		return attempt.VolumeSaved{Volume: pv}
	}
	p.metrics.saveFailures.Inc()
	return attempt.VolumeSaved{Err: fmt.Errorf("volume %s is made, its PersistentVolume cannot be saved: %w", a.Volume.VolumeId, err), Refused: isRefused(err)}
}

// isRefused says whether the API server has answered that it doesn't save a PersistentVolume, for whatever reason: an admission webhook
// chooses the code.
func isRefused(err error) bool {
	var answer apierrors.APIStatus
	var taken *nameTakenError
	return errors.As(err, &taken) || errors.As(err, &answer) && answer.Status().Code/100 == 4
}

// nameTakenError says that a PersistentVolume for another claim, or for none, has the name.
type nameTakenError struct{ text string }

func (e *nameTakenError) Error() string { return e.text }

// checkSaved returns nil if the PersistentVolume that exists is the one to be saved.
func checkSaved(ctx context.Context, client kubernetes.Interface, pv *v1.PersistentVolume) error {
	saved, err := client.CoreV1().PersistentVolumes().Get(ctx, pv.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	switch {
	case saved.DeletionTimestamp != nil:
		return fmt.Errorf("a PersistentVolume %s is still being deleted", pv.Name)
	case request.ClaimUID(saved) != pv.Spec.ClaimRef.UID:
		return &nameTakenError{fmt.Sprintf("PersistentVolume %s exists already and is not for claim %s/%s",
			pv.Name, pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name)}
	case saved.Spec.CSI == nil || saved.Spec.CSI.Driver != pv.Spec.CSI.Driver || saved.Spec.CSI.VolumeHandle != pv.Spec.CSI.VolumeHandle:
		return fmt.Errorf("PersistentVolume %s exists already with another volume than %s", pv.Name, pv.Spec.CSI.VolumeHandle)
	}
	return nil
}

// removeSelectedNode returns the claim to the scheduler, unless the scheduler has
// selected another node meanwhile.
func removeSelectedNode(ctx context.Context, client kubernetes.Interface, claim *v1.PersistentVolumeClaim, node string) error {
	patch := fmt.Sprintf(`[
		{"op":"test","path":"/metadata/uid","value":%q},
		{"op":"test","path":"/metadata/annotations/volume.kubernetes.io~1selected-node","value":%q},
		{"op":"remove","path":"/metadata/annotations/volume.kubernetes.io~1selected-node"}]`, claim.UID, node)
	claims := client.CoreV1().PersistentVolumeClaims(claim.Namespace)
	_, err := claims.Patch(ctx, claim.Name, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	if apierrors.IsInvalid(err) { // a test has failed, or an admission policy denies the change
		live, readErr := claims.Get(ctx, claim.Name, metav1.GetOptions{})
		switch {
		case readErr != nil:
			err = readErr
		case live.UID != claim.UID || live.Annotations[request.AnnSelectedNode] != node:
			return nil
		}
	}
	if apierrors.IsNotFound(err) {
		return nil // the claim is gone
	}
	return err
}
