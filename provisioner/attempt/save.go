package attempt

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/provisioner/request"
)

// From a volume to its PersistentVolume.

// save saves the volume, unless it is a leftover.
func (r *Record) save() {
	if r.isLeftover() {
		leftover := r.deleteUnowned()
		leftover.Proven, r.cause = true, nil
		r.act(Deleting, leftover)
		return
	}
	r.gonePV = ""
	r.act(Saving, SaveVolume{Request: r.request, Volume: r.volume})
}

// isLeftover says whether the claim does not need the volume, and its PersistentVolume would do harm or remain: a request of an earlier
// process may be an old one, whose volume was used and kept since; policy Retain keeps a volume that nobody has used, and so does a claim
// that has lost another volume.
func (r *Record) isLeftover() bool {
	harms := r.recovered || !r.mayHaveBeenUsed && (r.request.IsRetained() || request.HasLostVolume(r.claim))
	return r.saved == nil && (!r.isWanted() || r.pv != "") && harms
}

// deleteUnowned deletes the volume. One that only the journal of an earlier process says was made for the claim needs the driver's proof.
func (r *Record) deleteUnowned() DeleteUnowned {
	return DeleteUnowned{Request: r.request, Secrets: r.secrets, ID: r.volume.GetVolumeId(), Proven: r.recovered}
}

func (e VolumeSaved) apply(r *Record) {
	switch {
	case e.Err == nil:
		r.finish(e.Volume)
	case e.Refused:
		r.cause = e.Err
		r.act(CheckingClaim, CheckClaim{Claim: r.request.Claim})
	default:
		r.fail(failure{err: e.Err})
	}
}

// A volume that can't be saved is kept while its claim exists: it may be the only one
// that the claim can get.
func (e ClaimChecked) apply(r *Record) {
	if !e.Gone {
		r.fail(failure{err: r.cause})
		return
	}
	r.act(Deleting, r.deleteUnowned())
}

func (e VolumeDeleted) apply(r *Record) {
	switch r.phase {
	case CleaningUp:
		r.cleanedUp(e)
	case Discarding:
		r.discarded(e)
	default:
		r.deleted(e)
	}
}

// deleted ends an attempt whose volume the claim does not need, or can't have.
func (r *Record) deleted(e VolumeDeleted) {
	switch {
	case e.Err != nil && r.cause == nil:
		r.fail(failure{err: fmt.Errorf("volume %s is not needed, and can't be deleted yet: %w", e.ID, e.Err)})
		return
	case e.Err != nil:
		r.fail(failure{err: fmt.Errorf("%w; its claim is gone, and it can't be deleted yet: %w", r.cause, e.Err)})
		return
	case e.Kept != nil && !r.recovered && r.cause == nil: // its PersistentVolume shows it
		r.mayHaveBeenUsed = true
		r.save()
		return
	case e.Kept != nil:
		r.do(ReportKept{Request: r.request, ID: e.ID, Why: e.Kept})
	}
	err := r.cause
	r.gone = r.gone || err != nil // or about to be
	r.close(false)
	if err == nil {
		r.endIfUnneeded()
		return
	}
	r.fail(failure{err: err})
}

// finish ends an attempt whose volume has a PersistentVolume.
func (r *Record) finish(pv *v1.PersistentVolume) {
	if r.recovered || r.gone || r.claim.DeletionTimestamp != nil {
		r.do(CountLeakPrevented{})
	}
	r.do(Report{Claim: r.request.Claim, Volume: pv.Name, Took: r.now.Sub(r.began)})
	r.close(request.HasFinalizer(pv))
	r.failures, r.discards = 0, 0
	r.hasVolume(pv.Name)
}

// hasVolume waits until the claim is bound to its PersistentVolume.
func (r *Record) hasVolume(pv string) {
	if r.claim != nil && !r.isWanted() || r.gone {
		r.end()
		return
	}
	r.pv, r.formerPV = pv, ""
	if r.gonePV == pv {
		r.pv, r.formerPV, r.gonePV = "", pv, ""
		r.begin()
		return
	}
	r.waitIn(Saved)
	r.notBefore = r.now.Add(checkSavedInterval)
	r.requeue()
}

func errOwned(pv string) error { return fmt.Errorf("PersistentVolume %s stands for it", pv) }

func wrap(what string, err error) error { return fmt.Errorf("%s: %w", what, err) }
