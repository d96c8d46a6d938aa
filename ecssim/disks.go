package ecssim

import (
	"context"
	"time"

	"github.com/topodisk/topodisk/ecssim/state"
)

// Disks returns the data disks that exist, in the order of their creation.
func (s *Server) Disks() []DiskState {
	return seen(s, func(time.Time) []DiskState { return s.service.Region.DiskStates(false) })
}

// LockDisk locks a disk for some reasons, of LockReasons; none unlocks it. A disk
// that is locked for a payment is refused by AttachDisk with DiskInArrears.
func (s *Server) LockDisk(id string, reasons ...string) (err error) {
	s.look(func(time.Time) { err = s.service.Region.LockDisk(id, reasons) })
	return err
}

// Snapshots returns the snapshots that exist, in the order of their creation.
func (s *Server) Snapshots() []SnapshotState { return seen(s, s.service.Region.SnapshotStates) }

// AddAutoSnapshot makes a snapshot of a disk as ECS does by itself where an
// automatic snapshot policy says so, and returns its ID. It is done at once.
func (s *Server) AddAutoSnapshot(diskID string) (id string, err error) {
	s.look(func(now time.Time) { id, err = s.service.Region.AddAutoSnapshot(diskID, now) })
	return id, err
}

// Unstick lets the transitions of a disk come now that FaultStuck has kept
// back, and returns how many those are. An ID of "" stands for all disks.
func (s *Server) Unstick(disk string) int {
	return seen(s, func(now time.Time) int { return s.service.Region.Unstick(disk, now) })
}

// Check returns what is wrong with the state, joined, or nil: what must hold
// in any ECS, and what a driver's test must not have broken. Two disks under
// one ClientToken, a disk where none can be, a disk attached twice, a state
// that nothing led to, a count that does not add up.
func (s *Server) Check() error {
	return seen(s, func(time.Time) error { return s.service.Region.Check() })
}

// AwaitChange waits until there were more changes than those known, and returns
// how many there were: disks, devices and whatever else has come, changed or
// gone, by a call or at its own time. It does nothing while nothing changes. The
// error is that of ctx.
func (s *Server) AwaitChange(ctx context.Context, known int) (int, error) {
	for {
		w := seen(s, func(time.Time) state.Wait { return s.service.Region.NextChange() })
		if w.Changes > known {
			return w.Changes, nil
		}
		if err := w.End(ctx, s.clock); err != nil {
			return known, err
		}
	}
}
