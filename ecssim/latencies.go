package ecssim

import (
	"maps"
	"time"

	"github.com/topodisk/topodisk/ecssim/actions"
)

// SetLatency changes how long things take. What is under way takes as long as
// it would have.
func (s *Server) SetLatency(l Latency) error {
	if err := l.Check(actions.Names()); err != nil {
		return err
	}
	l.API = maps.Clone(l.API)
	s.look(func(time.Time) { s.service.Timing.Latency = l })
	return nil
}

// ChangeLatency changes what a LatencyForm names and leaves the rest as it is.
// It returns how long things take from now on.
func (s *Server) ChangeLatency(f LatencyForm) (LatencyForm, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, err := f.Read(s.service.Timing.Latency)
	if err != nil {
		return LatencyForm{}, err
	}
	if err := l.Check(actions.Names()); err != nil {
		return LatencyForm{}, err
	}
	s.service.Timing.Latency = l
	return l.Form(), nil
}

// Latency returns how long things take.
func (s *Server) Latency() LatencyForm {
	return seen(s, func(time.Time) LatencyForm { return s.service.Timing.Form() })
}
