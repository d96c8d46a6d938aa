package attempt

import (
	"time"

	"github.com/topodisk/topodisk/provisioner/request"
)

// The begin of an attempt: from the claim to a request in the journal.

// begin begins an attempt.
func (r *Record) begin() {
	r.dirty, r.siblingChanged, r.awaitsSibling, r.keepsNode = false, false, false, false
	r.attempted, r.began = r.claim, r.now
	if r.formerPV != "" {
		r.act(CheckingVolume, CheckVolume{Claim: r.claim, Name: r.formerPV})
		return
	}
	r.act(Resolving, Resolve{Claim: r.claim})
}

func (e VolumeChecked) apply(r *Record) {
	switch {
	case r.endIfUnneeded():
	case e.Err != nil:
		r.fail(failure{err: e.Err})
	case e.Wanting:
		r.formerPV, r.mayExist, r.attempted = "", true, r.claim
		r.act(Resolving, Resolve{Claim: r.claim})
	default:
		r.hasVolume(r.formerPV) // or the claim is gone or bound, which its watch is about to show
	}
}

// endIfUnneeded ends an attempt without side effects so far if the claim needs no volume any more, and says whether it has.
func (r *Record) endIfUnneeded() bool {
	switch {
	case !r.isWanted():
		r.end()
	case r.pv != "":
		r.hasVolume(r.pv)
	default:
		return false
	}
	return true
}

func (e Resolved) apply(r *Record) {
	r.awaitsAnyNode = false
	if r.endIfUnneeded() {
		return
	}
	if e.Verdict != NodeGone && e.Verdict != NodeUnready {
		r.node = ""
	}
	if e.Verdict != SiblingFirst {
		r.awaitedSince = time.Time{}
	}
	switch e.Verdict {
	case Ready:
		r.request, r.secrets = e.Request, e.Secrets
		r.ask(e)
	case HasVolume:
		r.hasVolume(e.Volume)
	case NotNow:
		r.waitIn(Unselected)
	case NoTopology:
		r.awaitsAnyNode = true
		r.fail(failure{err: e.Err})
	case NodeGone:
		r.noteUnplaced()
		r.cause = e.Err
		r.act(CheckingNode, CheckNode{Name: r.node})
	case NodeUnready:
		if r.noteUnplaced() < r.limits.NodeGrace {
			r.fail(failure{err: e.Err, transient: true})
			return
		}
		r.reschedule(e.Err)
	case NodeNotAllowed:
		r.reschedule(e.Err)
	case SiblingFirst:
		r.awaitSibling(e.Err)
	case SiblingRefused:
		r.do(CountSkipped{})
		r.reschedule(e.Err)
	case Invalid:
		r.fail(failure{err: e.Err, permanent: true})
	case NotYet:
		r.fail(failure{err: e.Err, waitsFor: e.WaitsFor, transient: e.Transient})
	}
}

// noteUnplaced records that the selected node has no zone for the claim, and returns for how long.
func (r *Record) noteUnplaced() time.Duration {
	node := selectedNode(r.attempted)
	if r.node != node {
		r.node, r.nodeSince = node, r.now
		r.clearTransient()
	}
	return r.now.Sub(r.nodeSince)
}

func (e NodeChecked) apply(r *Record) {
	err := r.cause
	if r.endIfUnneeded() {
		return
	}
	if !e.Gone && r.now.Sub(r.nodeSince) < r.limits.NodeGrace {
		r.fail(failure{err: err})
		return
	}
	r.reschedule(err)
}

// ask continues with a request, unless the driver has just refused it.
func (r *Record) ask(e Resolved) {
	switch {
	case e.Refusal != nil && e.OfClaim:
		r.do(CountSkipped{})
		r.reschedule(e.Refusal)
	case e.Refusal != nil:
		r.do(CountSkipped{})
		r.outOfStock(r.request, e.Refusal)
	case hasSource(r.request):
		r.act(Protecting, Protect{Request: r.request})
	default:
		r.write()
	}
}

// write writes the request to the journal before the driver is called, so that no crash loses a volume.
func (r *Record) write() {
	r.open = true
	r.act(Journaling, WriteJournal{Request: r.request})
}

// outOfStock ends an attempt for which no volume is available in the request's zones.
func (r *Record) outOfStock(asked *request.Request, err error) {
	if !asked.MayReschedule() {
		r.fail(failure{err: err})
		return
	}
	if r.isWanted() {
		r.do(ReportConflict{Request: asked})
	}
	r.reschedule(err)
}
