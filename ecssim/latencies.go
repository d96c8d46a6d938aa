package ecssim

import (
	"maps"
	"time"

	"github.com/topodisk/topodisk/ecssim/faults"
)

// SetLatency changes how long things take. What is under way takes as long as
// it would have.
func (s *Server) SetLatency(l faults.Latency) error {
	if err := l.Check(ActionNames()); err != nil {
		return err
	}
	l.API = maps.Clone(l.API)
	s.look(func(time.Time) { s.timing.Latency = l })
	return nil
}

// ChangeLatency changes what a LatencyForm names and leaves the rest as it is.
// It returns how long things take from now on.
func (s *Server) ChangeLatency(f faults.LatencyForm) (faults.LatencyForm, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, err := f.Read(s.timing.Latency)
	if err != nil {
		return faults.LatencyForm{}, err
	}
	if err := l.Check(ActionNames()); err != nil {
		return faults.LatencyForm{}, err
	}
	s.timing.Latency = l
	return l.Form(), nil
}

// Latency returns how long things take.
func (s *Server) Latency() faults.LatencyForm {
	return seen(s, func(time.Time) faults.LatencyForm { return s.timing.Form() })
}
