package ecs

import (
	"sync"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// states remembers the states in which this process left disks, so that the
// next call for them can be the right one at once. They are hints: ECS refuses
// a call that goes by a wrong one, and a read follows.
type states struct {
	mu sync.Mutex
	of map[disk.ID]remembered
}

// remembered is a state, and since when ECS has been at what leads out of it.
type remembered struct {
	state disk.State
	since time.Time
}

func newStates() *states { return &states{of: make(map[disk.ID]remembered)} }

func (s *states) note(id disk.ID, state disk.State, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[id] = remembered{state, since}
}

func (s *states) forget(id disk.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, id)
}

// last returns what was noted last.
func (s *states) last(id disk.ID) remembered {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of[id]
}
