package ecssim

import "slices"

// LockReasons are the reasons for which ECS locks a disk, as DescribeDisks shows
// them in OperationLocks.
var LockReasons = []string{"financial", "security", "recycling", "dedicatedhostfinancial"}

// LockDisk locks a disk for some reasons; none unlocks it. A disk that is locked
// for a payment is refused by AttachDisk with DiskInArrears.
func (s *Server) LockDisk(id string, reasons ...string) error {
	for _, reason := range reasons {
		if !slices.Contains(LockReasons, reason) {
			return &ConfigError{"reasons", reason, "some of " + quoted(LockReasons)}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.disks.byID[id]
	if d == nil {
		return &ConfigError{"disk", id, "the ID of a disk that exists"}
	}
	d.locks = slices.Clone(reasons)
	return nil
}

// checkLocks refuses to attach a disk that is locked for a payment.
func (d *disk) checkLocks() *refusal {
	if slices.Contains(d.locks, "financial") {
		return refuse(403, "DiskInArrears", "The disk %s is locked for an overdue payment.", d.id)
	}
	return nil
}

func (d *disk) renderLocks() []object {
	list := []object{}
	for _, reason := range d.locks {
		list = append(list, object{"LockReason": reason})
	}
	return list
}
