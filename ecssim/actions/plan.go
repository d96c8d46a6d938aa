package actions

import (
	"time"

	"github.com/topodisk/topodisk/ecssim/faults"
	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// plan lets a transition come at its time. The fault of the call may let it
// fail then, or keep it back until Unstick.
func plan(req *Request, t state.Transition) {
	t.Cause = req.Cause()
	req.Ends = t.At
	switch req.Fault.Do {
	case faults.Stuck:
		req.Region.KeepBack(t)
	case faults.Fails:
		req.Region.PlanFailure(t)
	default:
		req.Region.Plan(t)
	}
}

// repliesAt is when the reply to a request goes out, unless a fault delays it.
func repliesAt(req *Request) time.Time {
	return req.At.Add(req.Takes)
}

// Cause names the request as what made a change.
func (req *Request) Cause() string { return req.Action.Name + " " + req.RequestID }

// TouchNamed says that what the request names may change.
func (req *Request) TouchNamed() {
	if wire.IsRead(req.Action.Name) {
		return
	}
	for _, ids := range [][]string{{req.Disk, req.Params["DiskId"]}, req.Params.List("DiskIds")} {
		for _, id := range ids {
			if id != "" {
				req.Region.Touch(id)
			}
		}
	}
}
