package volume

import (
	"sync"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// states remembers since when disks are seen in a state that should end by itself.
// ECS doesn't say; after a restart the time counts from the first look.
type states struct {
	mu   sync.Mutex
	seen map[disk.ID]stateSince
}

// stateSince is a state, and when a disk was first seen in it.
type stateSince struct {
	state disk.State
	since time.Time
}

// saw takes down what a read showed of a disk.
func (s *states) saw(d disk.Disk, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	note(s.seen, s.seen, d, at)
}

// sawAll takes down what a read showed of all disks that there are.
func (s *states) sawAll(disks []disk.Disk, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := make(map[disk.ID]stateSince)
	for _, d := range disks {
		note(now, s.seen, d, at)
	}
	s.seen = now
}

// note adds a disk to those seen in a state that should end.
func note(now, before map[disk.ID]stateSince, d disk.Disk, at time.Time) {
	last, known := before[d.ID]
	switch _, ends := passing[d.State]; {
	case !ends:
		delete(now, d.ID)
	case known && last.state == d.State:
		now[d.ID] = last
	default:
		now[d.ID] = stateSince{d.State, at}
	}
}

// lasting returns for how long a disk had been seen in its state at a time; 0 if
// it was seen in another since.
func (s *states) lasting(d disk.Disk, at time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := s.seen[d.ID]; last.state == d.State {
		return max(0, at.Sub(last.since))
	}
	return 0
}
