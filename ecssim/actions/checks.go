package actions

import (
	"slices"

	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// findInstance returns an instance that must exist.
func findInstance(req *Request, id string) (*state.Instance, *wire.Refusal) {
	i := req.Region.Instance(id)
	if i == nil {
		return nil, wire.Refuse(404, "InvalidInstanceId.NotFound", "The specified InstanceId %q does not exist.", id)
	}
	return i, nil
}

// checkState refuses an instance that no disk can be attached to or detached
// from now. ECS's tables give IncorrectInstanceStatus another HTTP status by action.
func checkState(i *state.Instance, status int) *wire.Refusal {
	switch {
	case i.Status != state.InstanceRunning && i.Status != state.InstanceStopped:
		return wire.Refuse(status, "IncorrectInstanceStatus", "The current status %s of instance %s does not support this operation.", i.Status, i.ID)
	case i.Locked:
		return wire.Refuse(403, "InstanceLockedForSecurity", "The instance %s is locked for security.", i.ID)
	}
	return nil
}

// findDisk returns a disk that must exist.
func findDisk(req *Request, id string) (*state.Disk, *wire.Refusal) {
	d := req.Region.Disk(id)
	if d == nil {
		return nil, wire.Refuse(404, "InvalidDiskId.NotFound", "The specified DiskId %q does not exist.", id)
	}
	return d, nil
}

// checkLocks refuses to attach a disk that is locked for a payment.
func checkLocks(d *state.Disk) *wire.Refusal {
	if slices.Contains(d.Locks, "financial") {
		return wire.Refuse(403, "DiskInArrears", "The disk %s is locked for an overdue payment.", d.ID)
	}
	return nil
}

// findSnapshot returns a snapshot that must exist.
func findSnapshot(req *Request, id string) (*state.Snapshot, *wire.Refusal) {
	n := req.Region.Snapshot(id)
	if n == nil {
		return nil, wire.Refuse(404, "InvalidSnapshotId.NotFound", "The specified SnapshotId %q does not exist.", id)
	}
	return n, nil
}

// checkSnapshots refuses what can't be done to a disk while a snapshot of it
// is progressing.
func checkSnapshots(req *Request, d *state.Disk) *wire.Refusal {
	if progressing, _ := req.Region.SnapshotsOf(d); progressing > 0 {
		return wire.Refuse(403, "DiskCreatingSnapshot", "A snapshot of disk %s is being created.", d.ID)
	}
	return nil
}

// renderLocks returns the reasons for a lock as OperationLocks has them.
func renderLocks(reasons []string) []wire.Object {
	return wire.Each(reasons, func(reason string) wire.Object { return wire.Object{"LockReason": reason} })
}
