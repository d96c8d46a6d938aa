package attempt

import (
	"time"

	"github.com/topodisk/topodisk/provisioner/request"
)

// How an attempt begins: what to ask for, and whether to ask.

// Unplaced is a claim that has no zone because of its selected node, or because of
// all nodes.
type Unplaced struct{ Node string } // empty: a change of any node may help

// begin makes an attempt.
func (r *Record) begin() {
	r.again = false
	r.attempted, r.began = r.claim, r.now
	if r.had != "" {
		r.act(CheckingVolume, CheckVolume{Claim: r.claim, Name: r.had})
		return
	}
	r.act(Resolving, Resolve{Claim: r.claim})
}

func (e VolumeChecked) apply(r *Record) {
	switch {
	case r.isNeedless():
	case e.Err != nil:
		r.fail(failure{err: e.Err})
	case e.Wanting:
		r.had, r.mayExist, r.attempted = "", true, r.claim
		r.act(Resolving, Resolve{Claim: r.claim})
	default:
		r.hasVolume(r.had) // or the claim is gone or bound, which its watch is about to show
	}
}

// isNeedless ends an attempt of which nothing has left this process if the claim needs no volume any more.
func (r *Record) isNeedless() bool {
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
	r.unplaced = nil
	if r.isNeedless() {
		return
	}
	if e.Verdict != NodeGone && e.Verdict != NodeUnready {
		r.node = ""
	}
	switch e.Verdict {
	case Ready:
		r.request, r.secrets = e.Request, e.Secrets
		r.ask(e.Refusal)
	case HasVolume:
		r.hasVolume(e.Volume)
	case NotNow:
		r.rest(Unselected)
	case NoTopology:
		r.unplaced = &Unplaced{}
		r.fail(failure{err: e.Err})
	case NodeGone:
		r.missesNode()
		r.cause = e.Err
		r.act(CheckingNode, CheckNode{Name: r.node})
	case NodeUnready:
		if r.missesNode() < r.limits.NodeGrace {
			r.fail(failure{err: e.Err, passing: true})
			return
		}
		r.reschedule(e.Err)
	case NoZone:
		r.reschedule(e.Err)
	case Invalid:
		r.fail(failure{err: e.Err, hopeless: true})
	case NotYet:
		r.fail(failure{err: e.Err, waitsFor: e.WaitsFor, passing: e.Passing})
	}
}

// missesNode notes that the selected node has no zone for the claim, and returns for how long that has been so.
func (r *Record) missesNode() time.Duration {
	node := selectedNode(r.attempted)
	if r.node != node {
		r.node, r.nodeSince = node, r.now
		r.calm()
	}
	r.unplaced = &Unplaced{Node: node}
	return r.now.Sub(r.nodeSince)
}

func (e NodeChecked) apply(r *Record) {
	err := r.cause
	if r.isNeedless() {
		return
	}
	if !e.Gone && r.now.Sub(r.nodeSince) < r.limits.NodeGrace {
		r.fail(failure{err: err})
		return
	}
	r.reschedule(err)
}

// ask goes on with a request, unless the driver would refuse it.
func (r *Record) ask(refusal error) {
	switch {
	case refusal != nil:
		r.do(CountSkipped{})
		r.outOfStock(r.request, refusal)
	case hasSource(r.request):
		r.act(Protecting, Protect{Request: r.request})
	default:
		r.write()
	}
}

// write has the journal keep the request before the driver hears of it, so that no crash can make anybody forget a volume.
func (r *Record) write() {
	r.open = true
	r.act(Journaling, WriteJournal{Request: r.request})
}

// outOfStock ends an attempt for which there is no volume to be had where the claim may be.
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
