package attempt

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/provisioner/request"
)

// From a volume to its PersistentVolume.

func (r *Record) save() {
	r.gonePV = ""
	r.act(Saving, SaveVolume{Request: r.request, Volume: r.volume})
}

func (e VolumeSaved) apply(r *Record) {
	switch {
	case e.Err == nil:
		r.finish(e.Volume)
	case e.Never:
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
	r.act(Deleting, DeleteUnowned{Request: r.request, Secrets: r.secrets, ID: r.volume.GetVolumeId()})
}

func (e VolumeDeleted) apply(r *Record) {
	switch r.phase {
	case CleaningUp:
		r.cleanedUp(e)
		return
	case Discarding:
		r.discarded(e)
		return
	}
	err := r.cause
	if e.Err != nil {
		r.fail(failure{err: err})
		return
	}
	r.gone = true // or about to be
	r.close(false)
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
