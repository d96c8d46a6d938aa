package ecssim

import (
	"slices"
	"time"
)

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
