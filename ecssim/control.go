package ecssim

import (
	"maps"
	"slices"
	"time"

	"github.com/topodisk/topodisk/ecssim/actions"
	"github.com/topodisk/topodisk/ecssim/faults"
)

// AddFault appends a fault to the list. Its error names the field that is
// wrong and what is allowed.
func (s *Server) AddFault(f Fault) error {
	_, err := s.ArmFault(f)
	return err
}

// ArmFault is AddFault that returns the fault as the list has it: with its ID
// and with what was left out.
func (s *Server) ArmFault(f Fault) (armed Fault, err error) {
	s.look(func(now time.Time) { armed, err = s.faults.Add(f, now) })
	return armed, err
}

// ClearFaults empties the list. Calls that are under way keep theirs.
func (s *Server) ClearFaults() { s.look(func(time.Time) { s.faults.Clear() }) }

// Faults returns the list, with how often each has struck.
func (s *Server) Faults() []Fault {
	return seen(s, func(time.Time) []Fault { return s.faults.All() })
}

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

// SetQueues changes how many disks an instance attaches and detaches at a
// time. What is under way goes on.
func (s *Server) SetQueues(q Queues) error {
	if err := q.Check(); err != nil {
		return err
	}
	s.configure(func(c *Config) { c.Queues = q })
	return nil
}

// SetDoubts changes the behaviours that sources disagree on.
func (s *Server) SetDoubts(d Doubts) error {
	d.SnapshotUnattached, d.RefuseCreating = slices.Clone(d.SnapshotUnattached), slices.Clone(d.RefuseCreating)
	changed := Config{Doubts: d}
	if err := changed.checkDoubts(); err != nil {
		return err
	}
	s.configure(func(c *Config) { c.Doubts = changed.Doubts })
	return nil
}

// SetQuotas puts other quotas in force. What there is already stays.
func (s *Server) SetQuotas(q Quotas) error {
	if err := q.Check(); err != nil {
		return err
	}
	s.configure(func(c *Config) { c.Quotas = q })
	return nil
}

// configure changes what actions go by.
func (s *Server) configure(change func(*Config)) {
	s.look(func(time.Time) {
		change(&s.config)
		s.service.Rules = s.config.rules()
	})
}
