package ecssim

import (
	"time"

	"github.com/topodisk/topodisk/ecssim/faults"
	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// plan lets a transition come at its time. The fault of the call may let it
// fail then, or keep it back until Unstick.
func (s *Server) plan(x *exchange, t state.Transition) {
	t.Cause = x.cause()
	x.ends = t.At
	switch x.fault.Do {
	case faults.Stuck:
		s.region.KeepBack(t)
	case faults.Fails:
		s.region.PlanFailure(t)
	default:
		s.region.Plan(t)
	}
}

// repliesAt is when the reply to a request goes out, unless a fault delays it.
func (s *Server) repliesAt(x *exchange) time.Time {
	return x.at.Add(x.takes)
}

// cause names the request as what made a change.
func (x *exchange) cause() string { return x.action.name + " " + x.requestID }

// touchNamed touches what a request names.
func (s *Server) touchNamed(x *exchange) {
	if wire.IsRead(x.action.name) {
		return
	}
	for _, ids := range [][]string{{x.disk, x.Params["DiskId"]}, x.Params.List("DiskIds")} {
		for _, id := range ids {
			if id != "" {
				s.region.Touch(id)
			}
		}
	}
}
