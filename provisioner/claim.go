package provisioner

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/provisioner/request"
)

// tellOfMigration tells the owner of a claim that Kubernetes has migrated from
// an in-tree plugin to this driver why nothing comes of it: no in-tree plugin was
// ever this driver's, so its class has parameters that mean nothing here.
func (p *Provisioner) tellOfMigration(claim *v1.PersistentVolumeClaim) {
	if claim.Annotations[request.AnnMigratedTo] != p.config.DriverName || request.ProvisionerOf(claim) == p.config.DriverName || claim.Spec.VolumeName != "" {
		return
	}
	p.events.Eventf(claim, v1.EventTypeWarning, reasonMigration,
		"the claim is for the in-tree plugin %s and marked as migrated to driver %s, which has no in-tree predecessor; make it anew with a class whose provisioner is %s",
		request.ProvisionerOf(claim), p.config.DriverName, p.config.DriverName)
}

// tellOfPopulator tells the owner of a claim for whom its volume is left.
func (p *Provisioner) tellOfPopulator(claim *v1.PersistentVolumeClaim) {
	if request.HasPopulator(claim) {
		source := request.DataSource(claim)
		p.events.Eventf(claim, v1.EventTypeNormal, reasonPopulator, "the volume is left to the populator of %s %s", source.Kind, source.Name)
	}
}

// stillWanting asks the API server whether a claim really is without the
// PersistentVolume that it has had: caches may lag behind, and Kubernetes binds
// the two only some time after the volume is saved. The volume is looked at
// first, for once it is bound its going doesn't take the claim's binding back.
func (p *Provisioner) stillWanting(ctx context.Context, claim *v1.PersistentVolumeClaim, volume string) (Outcome, error) {
	pv, err := p.client.CoreV1().PersistentVolumes().Get(ctx, volume, metav1.GetOptions{})
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return Unchanged, fmt.Errorf("PersistentVolume %s of claim %s/%s: %w", volume, claim.Namespace, claim.Name, err)
	case err == nil && pv.Spec.ClaimRef != nil && pv.Spec.ClaimRef.UID == claim.UID:
		return Ignored, fmt.Errorf("claim %s/%s has PersistentVolume %s, to which it is not bound yet", claim.Namespace, claim.Name, volume)
	}
	live, err := p.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return Ignored, fmt.Errorf("claim %s/%s is gone", claim.Namespace, claim.Name)
	case err != nil:
		return Unchanged, fmt.Errorf("claim %s/%s: %w", claim.Namespace, claim.Name, err)
	case live.UID != claim.UID:
		return Ignored, fmt.Errorf("claim %s/%s is another one now", claim.Namespace, claim.Name)
	case live.Spec.VolumeName != "":
		return Ignored, fmt.Errorf("claim %s/%s has volume %s", claim.Namespace, claim.Name, live.Spec.VolumeName)
	}
	return Finished, nil
}
