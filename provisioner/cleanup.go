package provisioner

import (
	"context"
	"errors"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/provisioner/deletion"
)

// cleanUp deletes a volume that the driver made wrongly. Nothing is under way
// once it is gone; until then the same request is repeated.
func (p *Provisioner) cleanUp(ctx context.Context, o *order, response *csi.CreateVolumeResponse, why error) Outcome {
	id := response.GetVolume().GetVolumeId()
	if id == "" {
		return Background
	}
	if err := p.deleteUnowned(ctx, o, id); err != nil {
		p.events.Eventf(o.Claim, v1.EventTypeWarning, reasonCleanupFailed, "%v; volume %s could not be deleted again: %v", why, id, err)
		return Background
	}
	return Finished
}

// outcomeOfSave says what to do with a volume whose PersistentVolume can't be
// saved: it is kept and tried again, for it may be the claim's only one, until
// the API server will never take it and nobody asks for it any more. It is kept
// then, too, if a PersistentVolume that somebody else has made stands for it.
func (p *Provisioner) outcomeOfSave(ctx context.Context, o *order, err error) Outcome {
	var taken *nameTakenError
	if never := apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || errors.As(err, &taken); !never || !p.claimIsGone(ctx, o.Claim) {
		return Unchanged
	}
	err = p.deleteUnowned(ctx, o, o.made.VolumeId)
	var owned *deletion.OwnedError
	switch {
	case errors.As(err, &owned):
		klog.InfoS("A volume is left to a PersistentVolume that somebody else has made, for its claim is gone",
			"volume", o.made.VolumeId, "persistentVolume", owned.PersistentVolume)
	case err != nil:
		klog.ErrorS(err, "A volume that no PersistentVolume can stand for could not be deleted", "volume", o.made.VolumeId)
		return Unchanged
	default:
		klog.InfoS("A volume that no PersistentVolume can stand for was deleted, for its claim is gone", "volume", o.made.VolumeId)
	}
	p.journal.close(o.Claim.UID)
	return Finished
}

// claimIsGone asks the API server itself.
func (p *Provisioner) claimIsGone(ctx context.Context, claim *v1.PersistentVolumeClaim) bool {
	live, err := p.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
	return apierrors.IsNotFound(err) || err == nil && live.UID != claim.UID
}

// deleteUnowned deletes a volume, unless a PersistentVolume stands for it.
func (p *Provisioner) deleteUnowned(ctx context.Context, o *order, id string) error {
	err := p.deleter.DeleteUnowned(ctx, id, o.secrets)
	if err == nil {
		p.metrics.leaks.WithLabelValues(endDeleted).Inc()
	}
	return err
}
