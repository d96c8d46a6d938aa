package attempt

import (
	"fmt"
	"time"
)

// The siblings of a claim are the other claims of its Pod. A PersistentVolume ties the Pod to its zone, so a volume that was
// made is held until its siblings have theirs, and is deleted if one of them can't have one there.

// Siblings is what a claim's siblings mean for it. The zero value is that of a claim without any.
type Siblings struct {
	State      SiblingState
	Unselected bool  // the node was not selected for any that is awaited: perhaps it never is
	Err        error // names the sibling that is awaited or refused, and why
}

// SiblingState is the state of all siblings together.
type SiblingState int

// The states of siblings.
const (
	// NoneAwaited says that all have volumes, or that none is worth waiting for.
	NoneAwaited SiblingState = iota
	// Awaited says that one may get its volume yet.
	Awaited
	// Refused says that one can't have a volume for the selected node, or that another node was selected since, which can't use this one.
	Refused
)

// Progress is how far a claim has come to a volume.
type Progress int

// The progress of a claim.
const (
	// NoAttempt says that no attempt is under way.
	NoAttempt Progress = iota
	// InAttempt says that an attempt may lead to a volume yet.
	InAttempt
	// Failed says that the last attempt failed for a reason that another node does not change.
	Failed
	// VolumeMade says that the volume exists.
	VolumeMade
)

// maxDiscards is how many volumes in a row are deleted for the sake of siblings: what was made after that is saved, so that no
// claim has disks made and deleted without end.
const maxDiscards = 3

// selectionWait is how long a volume is held for a sibling for which the node was not selected: the scheduler selects a node for one claim
// of a Pod after the other.
const selectionWait = 10 * time.Second

// siblingCheckInterval is how often a claim that awaits a sibling looks for it, in case an event was missed.
const siblingCheckInterval = 10 * time.Second

// progress returns how far the claim has come.
func (r *Record) progress() Progress {
	switch {
	case r.phase == Saved, r.volume != nil && r.phase != Discarding:
		return VolumeMade
	case r.phase == Waiting && !r.awaitsSibling && !r.keepsNode && r.transientSince.IsZero():
		return Failed
	case r.phase == Waiting, r.phase == Doubtful, r.phase.inAction() && r.phase != Unselecting:
		return InAttempt
	}
	return NoAttempt
}

// wakeSiblings tells the siblings that the claim has got further.
func (r *Record) wakeSiblings() {
	if !r.awaitsSibling {
		r.do(WakeSiblings{Claim: r.attempted})
	}
}

// awaitSibling ends an attempt that begins again once a sibling has its volume. A claim that has waited for too long returns
// to the scheduler, for its selected node keeps the Pod from every other node.
func (r *Record) awaitSibling(err error) {
	if r.awaitedSince.IsZero() {
		r.awaitedSince = r.now
	}
	limit := r.awaitedSince.Add(r.limits.SiblingWait)
	if !r.now.Before(limit) {
		r.awaitedSince = time.Time{}
		r.reschedule(err)
		return
	}
	changed := r.siblingChanged || r.dirty
	r.waitIn(Waiting)
	if r.phase != Waiting {
		return
	}
	r.awaitsSibling = true
	if changed {
		r.retry()
		return
	}
	r.notBefore = earlier(r.now.Add(siblingCheckInterval), limit)
	r.requeue()
}

// hold saves the volume, unless siblings have none yet.
func (r *Record) hold(s Siblings) {
	limit := r.awaitedSince.Add(r.limits.SiblingWait)
	if s.Unselected {
		limit = earlier(limit, r.awaitedSince.Add(selectionWait))
	}
	refused := s.State == Refused && r.discards < maxDiscards && r.request.MayReschedule()
	switch {
	case !r.mayHold():
		r.save()
	case refused:
		r.discard(s.Err)
	case s.State != Awaited, !r.now.Before(limit):
		r.save()
	case r.siblingChanged, r.dirty:
		r.checkSiblings()
	default:
		r.phase = Held
		r.do(ReportHeld{Request: r.request, Volume: r.volume.GetVolumeId(), Why: s.Err})
		r.clearTransient()
		r.notBefore = earlier(r.now.Add(siblingCheckInterval), limit)
		r.endAsRequested()
		r.requeue()
	}
}

// mayHold says whether the claim needs the volume and nothing stands for either.
func (r *Record) mayHold() bool { return r.isWanted() && r.pv == "" && r.saved == nil }

// checkSiblings looks for the siblings of a claim whose volume is held.
func (r *Record) checkSiblings() {
	r.dirty, r.siblingChanged = false, false
	if !r.mayHold() {
		r.save()
		return
	}
	r.act(CheckingSiblings, CheckSiblings{Request: r.request, Volume: r.volume})
}

func (e SiblingsChecked) apply(r *Record) { r.hold(e.Siblings) }

// discard deletes the volume, because a sibling can't have one in its zone, or the Pod's node is in another one now.
func (r *Record) discard(cause error) {
	r.cause = fmt.Errorf("volume %s was made for node %s and is deleted: %w", r.volume.GetVolumeId(), r.request.Node, cause)
	discard := r.deleteUnowned()
	discard.Discards = true
	r.act(Discarding, discard)
}

// discarded returns the claim to the scheduler once its volume is deleted.
func (r *Record) discarded(e VolumeDeleted) {
	switch {
	case e.Owner != "", e.Kept != nil:
		r.save()
	case e.Err != nil: // the same request finds out whether it is gone
		r.volume = nil
		r.fail(failure{err: fmt.Errorf("%w; it could not be deleted yet: %w", r.cause, e.Err), outcome: Background})
	default:
		r.discards++
		r.mayExist = !r.sole
		r.close(false)
		r.reschedule(r.cause)
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

var siblingStates = [...]string{"", "awaited", "refused"}

// String returns the state and why, nothing for NoneAwaited.
func (s Siblings) String() string {
	if s.State == NoneAwaited {
		return ""
	}
	return words(fmt.Sprintf("sibling=%s", siblingStates[s.State]), when("unselected", s.Unselected), fmt.Sprintf("why=%q", fmt.Sprint(s.Err)))
}
