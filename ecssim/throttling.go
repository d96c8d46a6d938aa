package ecssim

import (
	"time"

	"github.com/topodisk/topodisk/ecssim/actions"
	"github.com/topodisk/topodisk/ecssim/faults"
)

// SetThrottle puts other limits in force. What was counted so far is
// forgotten. Its error names the field that is wrong and what is allowed.
func (s *Server) SetThrottle(t Throttle) error {
	if err := t.Check(actions.Names()); err != nil {
		return err
	}
	s.look(func(time.Time) { s.limits = faults.NewCallLimits(t) })
	return nil
}

// Throttle returns the limits in force and how far they are used up.
func (s *Server) Throttle() ThrottleState {
	return seen(s, func(now time.Time) ThrottleState { return s.limits.State(now) })
}
