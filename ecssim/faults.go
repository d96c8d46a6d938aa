package ecssim

import "time"

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
