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
	hopeless  bool    // no volume can serve the claim as it is
	passing   bool    // it ends by itself, and soon
	waitsFor  any     // the object that must change
}

// fail ends the attempt; another follows.
func (r *Record) fail(f failure) {
	if r.saved != nil && r.open {
		r.finish(r.saved)
		return
	}
	r.count(f)
	if !r.open && (!r.isWanted() || r.pv != "") {
		r.isNeedless()
		return
	}
	r.failures++
	pause := r.pause()
	switch {
	case f.hopeless:
		pause = r.limits.RetryMax // the events of claim and class have it looked at at once
	case f.outcome == Background && f.isPending:
		pause = min(pause, longestDoubt)
	}
	r.notBefore = r.now.Add(pause)
	r.phase = r.restingPhase()
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
	case r.again:
		r.retry()
	default:
		r.requeue()
	}
}

// endAsRequested ends the open request if an operator has asked for that, and says whether it has. One whose volume is known
// stays, for it is saved as soon as the API server lets us, and so does one whose claim wants a volume: it would only begin anew.
func (r *Record) endAsRequested() bool {
	if r.endReason == "" {
		return false
	}
	report := ReportEnd{Request: r.request, Reason: r.endReason}
	switch {
	case !r.open:
		report.Kept = "nothing is under way for it"
	case r.volume != nil:
		report.Kept = fmt.Sprintf("volume %s was made and waits for its PersistentVolume", r.volume.GetVolumeId())
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

// restingPhase is where an attempt that failed leaves the Record.
func (r *Record) restingPhase() Phase {
	switch {
	case !r.open:
		return Waiting
	case r.volume != nil:
		return Unsaved
	}
	return Doubtful
}

// pause is the back-off after so many failures.
func (r *Record) pause() time.Duration {
	pause := r.limits.RetryStart
	for range r.failures - 1 {
		if pause *= 2; pause >= r.limits.RetryMax {
			return r.limits.RetryMax
		}
	}
	return min(pause, r.limits.RetryMax)
}

// count counts the failure and tells of it, unless it is likely to be over soon.
func (r *Record) count(f failure) {
	r.do(CountFailure{Claim: r.attempted, Class: r.class(), Err: f.err})
	if !f.passing {
		r.calm()
		r.notify(f.err)
		return
	}
	if r.held.IsZero() {
		r.held = r.now
	}
	if r.deferred = f.err; !r.now.Before(r.held.Add(notifyAfter)) {
		r.notify(f.err)
	}
}

func (r *Record) notify(err error) {
	r.deferred = nil
	if !r.isWanted() && !r.open {
		return // nobody reads it
	}
	r.do(Notify{Claim: r.attempted, Class: r.class(), Err: err})
}

// calm notes that the claim does not wait for what comes by itself.
func (r *Record) calm() { r.held, r.deferred = time.Time{}, nil }

// class returns the name of the class that the attempt is made for.
func (r *Record) class() string {
	switch {
	case r.request != nil:
		return r.request.Class.Name
	case r.attempted == nil:
		return ""
	}
	return request.ClassName(r.attempted)
}

// reschedule sends the claim back to the scheduler, if that has chosen its node.
func (r *Record) reschedule(err error) {
	node := selectedNode(r.attempted)
	if node == "" || !r.isWanted() {
		r.fail(failure{err: err})
		return
	}
	r.do(CountReschedule{Err: err})
	r.count(failure{err: err})
	r.unplaced = nil
	r.node = ""
	r.act(Unselecting, RemoveSelectedNode{Claim: r.attempted, Node: node})
}

func (e NodeRemoved) apply(r *Record) {
	switch {
	case !r.isWanted():
		r.end()
		return
	case e.Err != nil:
		r.failures++
		r.notBefore = r.now.Add(r.pause())
		r.phase = Waiting
		if r.again {
			r.retry()
			return
		}
		r.requeue()
		return
	}
	r.failures = 0
	r.claim = withoutNode(r.claim, selectedNode(r.attempted))
	r.rest(Unselected)
}

// close ends the request. Lazily says that a PersistentVolume stands for its volume.
func (r *Record) close(lazily bool) {
	r.do(EraseJournal{Lazily: lazily})
	if hasSource(r.request) {
		r.do(Unprotect{})
	}
	r.again = r.again || r.claim.ResourceVersion != r.request.Claim.ResourceVersion
	r.request, r.secrets, r.volume, r.saved = nil, nil, nil, nil
	r.open, r.doubtful, r.recovered, r.prefetched, r.endReason = false, false, false, false, ""
}
