package attempt

import (
	"fmt"
	"time"

	"github.com/topodisk/topodisk/provisioner/request"
)

// How an attempt ends without a volume, and when the next one begins.

// failure is how an attempt ended.
type failure struct {
	err       error
	outcome   Outcome // Background if a volume may exist
	isPending bool    // the driver has said that the operation goes on
	noStock   bool    // or that it makes no volume now, though an earlier call may have
	permanent bool    // no volume is possible until the claim or its class changes
	transient bool    // it is expected to end soon without a change of the claim
	waitsFor  error   // says what must change, for Subscribe
}

// fail ends the attempt; another follows.
func (r *Record) fail(f failure) {
	if r.saved != nil && r.open {
		r.finish(r.saved)
		return
	}
	r.count(f)
	r.wakeSiblings()
	if !r.open && (!r.isWanted() || r.pv != "") {
		r.endIfUnneeded()
		return
	}
	r.failures++
	pause := r.pause()
	switch {
	case f.permanent:
		pause = r.limits.RetryMax // a change of the claim or its class begins an attempt at once
	case f.outcome == Background && f.noStock:
		pause = min(r.limits.RetryMax, maxDoubtfulPause) // only the proof that there is none is waited for
	case f.outcome == Background && f.isPending:
		pause = min(pause, maxDoubtfulPause)
	}
	r.notBefore = r.now.Add(pause)
	r.phase = r.phaseAfterFailure()
	if !r.open {
		r.request, r.secrets = nil, nil
		r.dropPrefetched()
	}
	if f.waitsFor != nil {
		r.subscribe(f.waitsFor)
	} else {
		r.unsubscribe()
	}
	switch {
	case r.endAsRequested():
	case r.dirty:
		r.retry()
	default:
		r.requeue()
	}
}

// endAsRequested ends the open request if an operator has asked for that, and says whether it has. A request whose
// claim needs a volume stays, because it would begin again.
func (r *Record) endAsRequested() bool {
	if r.endReason == "" {
		return false
	}
	report := ReportEnd{Request: r.request, Volume: r.volume.GetVolumeId(), Reason: r.endReason}
	switch {
	case !r.open:
		report.Kept = "nothing is under way for it"
	case r.isWanted():
		report.Kept = "its claim still wants a volume; delete the claim first"
	}
	r.endReason = ""
	r.do(report)
	if report.Kept != "" {
		return false
	}
	r.close(false)
	r.end()
	return true
}

// phaseAfterFailure is the phase in which the Record waits for the next attempt.
func (r *Record) phaseAfterFailure() Phase {
	switch {
	case !r.open:
		return Waiting
	case r.volume != nil:
		return Unsaved
	}
	return Doubtful
}

// pause returns the back-off.
func (r *Record) pause() time.Duration {
	pause := r.limits.RetryStart
	for range r.failures - 1 {
		if pause *= 2; pause >= r.limits.RetryMax {
			return r.limits.RetryMax
		}
	}
	return min(pause, r.limits.RetryMax)
}

// count counts the failure and notifies the claim's owner; of transient errors only once they have lasted notifyAfter.
func (r *Record) count(f failure) {
	r.do(CountFailure{Claim: r.attempted, Class: r.class(), Err: f.err})
	if !f.transient {
		r.clearTransient()
		r.notify(f.err)
		return
	}
	if r.transientSince.IsZero() {
		r.transientSince = r.now
	}
	if r.deferred = f.err; !r.now.Before(r.transientSince.Add(notifyAfter)) {
		r.notify(f.err)
	}
}

func (r *Record) notify(err error) {
	r.deferred = nil
	if !r.isWanted() && !r.open {
		return // events on the claim would not be read
	}
	r.do(Notify{Claim: r.attempted, Class: r.class(), Err: err})
}

// clearTransient ends a series of transient errors.
func (r *Record) clearTransient() { r.transientSince, r.deferred = time.Time{}, nil }

// class returns the name of the attempt's class.
func (r *Record) class() string {
	switch {
	case r.request != nil:
		return r.request.Class.Name
	case r.attempted == nil:
		return ""
	}
	return request.ClassName(r.attempted)
}

// reschedule returns the claim to the scheduler if a node is selected.
func (r *Record) reschedule(err error) {
	node := selectedNode(r.attempted)
	if node == "" || !r.isWanted() {
		r.fail(failure{err: err})
		return
	}
	r.wakeSiblings()
	r.cause = err
	r.awaitsAnyNode = false
	r.node = ""
	r.act(Unselecting, RemoveSelectedNode{Claim: r.attempted, Node: node})
}

func (e NodeRemoved) apply(r *Record) {
	switch {
	case !r.isWanted():
		r.end()
	case e.Err != nil:
		r.keepsNode = true
		r.fail(failure{err: fmt.Errorf("%w; the claim can't return to the scheduler yet: %w", r.cause, e.Err)})
	default:
		r.do(CountReschedule{Err: r.cause})
		r.count(failure{err: r.cause})
		r.failures = 0
		r.claim = withoutNode(r.claim, selectedNode(r.attempted))
		r.waitIn(Unselected)
	}
}

// close ends the request. Lazily says that a PersistentVolume keeps its volume from being forgotten.
func (r *Record) close(lazily bool) {
	r.do(EraseJournal{Lazily: lazily})
	if hasSource(r.request) {
		r.do(Unprotect{})
	}
	r.dirty = r.dirty || r.claim.ResourceVersion != r.request.Claim.ResourceVersion
	r.request, r.secrets, r.volume, r.saved = nil, nil, nil, nil
	r.open, r.doubtful, r.recovered, r.prefetched, r.mayHaveBeenUsed, r.endReason = false, false, false, false, false, ""
}
