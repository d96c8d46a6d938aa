package attempt

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Events of the watches, of time and of operators.

func (e Started) apply(r *Record) {
	r.see(e.Claim)
	switch {
	case r.phase == New, r.phase == Prefetched, r.phase == Waiting, r.phase == Unselected, r.phase == Saved && r.pv == "":
		r.begin()
	case r.phase.inAction() && !r.open:
		r.dirty = true
	}
}

func (e ClaimChanged) apply(r *Record) {
	if r.see(e.Claim) {
		r.changed()
	}
}

// see records the claim, and says whether it is newer than what was seen before: Started and ClaimChanged come from different
// queues, and a resync shows a claim once more. A claim from the journal has no version, and is older.
func (r *Record) see(claim *v1.PersistentVolumeClaim) bool {
	if r.claim != nil {
		order, err := resourceversion.CompareResourceVersion(claim.ResourceVersion, r.claim.ResourceVersion)
		if err == nil && order < 0 || claim.ResourceVersion == r.claim.ResourceVersion {
			return false
		}
	}
	r.claim = claim
	return true
}

func (ClaimGone) apply(r *Record) {
	r.gone = true
	r.changed()
}

func (Woken) apply(r *Record) { r.wake() }

// Only a Record that waits for other claims of its Pod retries: attempts that fail must not wake each other.
func (SiblingChanged) apply(r *Record) {
	switch {
	case r.phase.inAction():
		r.siblingChanged = true
	case r.phase == Held, r.phase == Waiting && r.awaitsSibling:
		r.retry()
	}
}

func (ClassChanged) apply(r *Record) {
	if r.phase == Unselected {
		r.changed()
		return
	}
	r.wake()
}

func (Tick) apply(r *Record) { r.tick() }

func (e VolumeSeen) apply(r *Record) {
	if e.Volume.Name == r.gonePV {
		r.gonePV = ""
	}
	stands := r.request != nil && r.open && r.request.IsSavedAs(e.Volume)
	switch {
	case stands && r.phase.inAction():
		r.saved = e.Volume
	case stands:
		r.finish(e.Volume)
	case r.phase.inAction(), r.open:
		r.pv = e.Volume.Name // not made by this request
	case r.phase == Ended:
	default:
		r.hasVolume(e.Volume.Name)
	}
}

func (e VolumeGone) apply(r *Record) {
	if r.phase.inAction() {
		r.gonePV = e.Name // its result may say that it is there
	}
	if r.pv != e.Name {
		return
	}
	r.pv, r.formerPV = "", e.Name
	if r.phase == Saved {
		r.changed()
	}
}

// An operator's request takes effect when no action is under way.
func (e EndRequested) apply(r *Record) {
	r.endReason = e.Reason
	if !r.phase.inAction() {
		r.endAsRequested()
	}
}

func (e Recovered) apply(r *Record) {
	if r.open || r.phase.inAction() {
		return
	}
	r.claim, r.attempted, r.request = e.Request.Claim, e.Request.Claim, e.Request
	r.open, r.mayExist, r.doubtful, r.recovered, r.prefetched = true, true, true, true, false
	r.repeat()
}
