package attempt

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/provisioner/request"
)

// How a volume gets its PersistentVolume.

func (r *Record) save() {
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

// A volume is kept while its claim exists, for it may be the only one that the claim
// can get: only once nobody asks for it any more is it deleted.
func (e ClaimChecked) apply(r *Record) {
	if !e.Gone {
		r.fail(failure{err: r.cause})
		return
	}
	r.act(Deleting, DeleteUnowned{Request: r.request, Secrets: r.secrets, ID: r.volume.GetVolumeId()})
}

func (e VolumeDeleted) apply(r *Record) {
	if r.phase == CleaningUp {
		r.cleanedUp(e)
		return
	}
	err := r.cause
	if e.Err != nil {
		r.fail(failure{err: err})
		return
	}
	r.gone = true // or about to be
	r.close(false)
	if e.Owner != "" {
		r.do(WakeDeletion{Volume: e.Owner})
	}
	r.fail(failure{err: err})
}

// finish ends an attempt by the PersistentVolume that stands for its volume.
func (r *Record) finish(pv *v1.PersistentVolume) {
	if r.recovered || r.gone || r.claim.DeletionTimestamp != nil {
		r.do(CountLeak{})
	}
	r.do(Report{Claim: r.request.Claim, Volume: pv.Name, Took: r.now.Sub(r.began)})
	r.close(request.HasFinalizer(pv))
	if pv.DeletionTimestamp != nil || pv.Status.Phase == v1.VolumeReleased {
		r.do(WakeDeletion{Volume: pv.Name})
	}
	r.failures = 0
	r.hasVolume(pv.Name)
}

// hasVolume rests until the claim is bound to the PersistentVolume that stands for it.
func (r *Record) hasVolume(pv string) {
	if r.claim != nil && !r.isWanted() || r.gone {
		r.end()
		return
	}
	r.pv, r.had = pv, ""
	r.rest(Saved)
	r.notBefore = r.now.Add(checkSavedEvery)
	r.requeue()
}

func errOwned(pv string) error { return fmt.Errorf("PersistentVolume %s stands for it", pv) }

func wrap(what string, err error) error { return fmt.Errorf("%s: %w", what, err) }
