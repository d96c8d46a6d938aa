package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/topodisk/topodisk/provisioner/request"
)

// saveTimeout bounds one attempt to save a PersistentVolume.
const saveTimeout = 30 * time.Second

// save writes the PersistentVolume of the volume, unless that is a leftover. A volume that can't be saved is kept while its claim exists: it
// may be the only one that the claim can get.
func (t *task) save() error {
	if t.isLeftover() {
		if err := t.deleteLeftover(); !isKept(err) {
			return err
		}
		// It may have been used: its PersistentVolume shows it.
	}
	pv := t.request.PersistentVolume(t.Options, t.volume)
	err := t.ask(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, saveTimeout)
		defer cancel()
		return t.api.save(ctx, pv)
	})
	if err == nil {
		t.made = pv
		return nil
	}
	t.metrics.saveFailures.Inc()
	f := &failure{kind: unsaved, err: fmt.Errorf("volume %s is made, its PersistentVolume cannot be saved: %w", t.volume.VolumeId, err)}
	if !isRefused(err) {
		return f
	}
	gone := false
	_ = t.ask(func(ctx context.Context) error { gone = t.api.isClaimGone(ctx, t.request.Claim); return nil })
	if !gone {
		return f
	}
	return t.deleteUnsavable(f)
}

// isLeftover says whether the claim does not need the volume, and its PersistentVolume would do harm or remain: a request of an earlier
// process may be an old one, whose volume was used and kept since; policy Retain keeps a volume that nobody has used, and so does a claim
// that has lost another volume.
func (t *task) isLeftover() bool {
	claim := t.cached()
	return t.isUnneeded() && (t.recovered || t.request.IsRetained() || claim != nil && request.HasLostVolume(claim))
}

// deleteLeftover deletes the volume if it was never used. A *keptError says that it may have been, and that its PersistentVolume is to be
// saved all the same; one that only the journal of an earlier process knows is left without.
func (t *task) deleteLeftover() error {
	id := t.volume.VolumeId
	switch err := t.deleteUnowned(id, true, t.metrics.deleted); {
	case isKept(err) && !t.recovered:
		return err
	case isKept(err):
		t.reportKept(id, err)
	case err != nil && !isOwned(err):
		return &failure{kind: unsaved, err: fmt.Errorf("volume %s is not needed, and can't be deleted yet: %w", id, err)}
	}
	t.close()
	return errChanged
}

// errGone ends an attempt for a claim that the API server doesn't have, whatever the cache shows.
var errGone = errors.New("the claim is gone")

// deleteUnsavable deletes a volume that the API server doesn't let be saved, and whose claim is gone.
func (t *task) deleteUnsavable(f *failure) error {
	id := t.volume.VolumeId
	switch err := t.deleteUnowned(id, t.recovered, t.metrics.deleted); {
	case isKept(err):
		t.reportKept(id, err)
	case err != nil && !isOwned(err):
		return &failure{kind: unsaved, err: fmt.Errorf("%w; its claim is gone, and it can't be deleted yet: %w", f.err, err)}
	}
	t.close()
	return fmt.Errorf("%w: %w", errGone, f.err)
}

func isKept(err error) bool { _, kept := errors.AsType[*keptError](err); return kept }

func isOwned(err error) bool { _, owned := errors.AsType[*ownedError](err); return owned }
