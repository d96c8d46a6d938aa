package ecssim

import (
	"slices"
	"time"

	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// LockReasons are the reasons for which ECS locks a disk, as DescribeDisks shows
// them in OperationLocks.
var LockReasons = []string{"financial", "security", "recycling", "dedicatedhostfinancial"}

// LockDisk locks a disk for some reasons; none unlocks it. A disk that is locked
// for a payment is refused by AttachDisk with DiskInArrears.
func (s *Server) LockDisk(id string, reasons ...string) error {
	for _, reason := range reasons {
		if !slices.Contains(LockReasons, reason) {
			return config.Invalid("reasons", reason, "some of "+config.List(LockReasons))
		}
	}
	var d *disk
	s.look(func(time.Time) {
		if d = s.disks.byID[id]; d != nil {
			s.earlier.touch(id)
			d.locks = slices.Clone(reasons)
		}
	})
	if d == nil {
		return config.Invalid("disk", id, "the ID of a disk that exists")
	}
	return nil
}

// checkLocks refuses to attach a disk that is locked for a payment.
func (d *disk) checkLocks() *wire.Refusal {
	if slices.Contains(d.locks, "financial") {
		return wire.Refuse(403, "DiskInArrears", "The disk %s is locked for an overdue payment.", d.id)
	}
	return nil
}

func (d *disk) renderLocks() []wire.Object {
	return wire.Each(d.locks, func(reason string) wire.Object { return wire.Object{"LockReason": reason} })
}
