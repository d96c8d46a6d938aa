package provisioner

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
)

// saveTimeout bounds one attempt to save a PersistentVolume.
const saveTimeout = 30 * time.Second

// tellOfTwins tells of a claim that more than one PersistentVolume was made for:
// a driver has made two volumes of one name. Kubernetes binds one of them, and
// releases the others, which are deleted as their policy says.
func (p *Provisioner) tellOfTwins(pv *v1.PersistentVolume) {
	ref := pv.Spec.ClaimRef
	if ref == nil || !request.IsMadeBy(pv, p.config.DriverName) {
		return
	}
	volumes, err := watch.VolumesOfClaim(p.volumes, ref.UID)
	if err != nil || len(volumes) < 2 {
		return
	}
	var names []string
	for _, twin := range volumes {
		if request.IsMadeBy(twin, p.config.DriverName) {
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
	p.journal.rememberVolume(o.Claim.UID, pv.Name)
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
