package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/topodisk/topodisk/provisioner/deletion"
)

// saveTimeout bounds one attempt to save a PersistentVolume.
const saveTimeout = 30 * time.Second

// save writes the PersistentVolume of the volume, unless that is a leftover, or may be deleted already. A volume that can't be saved is kept
// while its claim needs one: it may be the only one that the claim can get.
func (t *task) save() error {
	if t.isLeftover() || t.mayBeDeleted() {
		err := t.deleteUnneeded(t.isLeftover())
		switch {
		case isKept(err) && t.recovered:
			return t.leave(err)
		case !isKept(err):
			return err
		}
		// It may have been used: its PersistentVolume shows it.
	}
	pv := t.request.PersistentVolume(t.Options, t.volume)
	err := t.unlocked(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, saveTimeout)
		defer cancel()
		return t.api.save(ctx, pv)
	})
	if err == nil {
		t.made = pv
		return nil
	}
	t.metrics.saveFailures.Inc()
	t.maybeSaved = t.maybeSaved || !isRefused(err)
	if !isRefused(err) || !t.isUnneeded() || t.saved() != nil {
		return &failure{kind: unsaved, err: fmt.Errorf("volume %s is made, its PersistentVolume cannot be saved: %w", t.volume.VolumeId, err)}
	}
	if err = t.deleteUnneeded(t.recovered); isKept(err) {
		return t.leave(err)
	}
	return err
}

// isLeftover says whether the claim does not need the volume, and its PersistentVolume would do harm or remain: a request of an earlier
// process may be an old one, whose volume was used and kept since; policy Retain keeps a volume that nobody has used; and a claim that goes on
// without the volume, because it has another one or has lost one, would be bound to it or keep it.
func (t *task) isLeftover() bool {
	claim := t.cached()
	return t.isUnneeded() && (t.recovered || t.request.IsRetained() || claim != nil && claim.DeletionTimestamp == nil)
}

// deleteUnneeded deletes a volume that the claim doesn't need, and ends its request. A *keptError says that it may have been used, and is still
// there.
func (t *task) deleteUnneeded(needsProof bool) error {
	id := t.volume.VolumeId
	switch err := t.deleteUnowned(id, needsProof, t.metrics.deleted); {
	case isKept(err):
		return err
	case err != nil && !isOwned(err):
		return &failure{kind: undeleted, err: fmt.Errorf("volume %s is not needed, and can't be deleted yet: %w", id, err)}
	}
	t.endRequest()
	return errChanged
}

// mayBeDeleted says whether the claim did not need the volume, and how the deletion of it ended is not known.
func (t *task) mayBeDeleted() bool { return t.failure != nil && t.failure.kind == undeleted }

// leave ends the request of a volume that stays without a PersistentVolume.
func (t *task) leave(why error) error {
	t.reportKept(t.volume.VolumeId, why)
	t.endRequest()
	return errChanged
}

func isKept(err error) bool { _, kept := errors.AsType[*keptError](err); return kept }

func isOwned(err error) bool { _, owned := errors.AsType[*deletion.OwnedError](err); return owned }
