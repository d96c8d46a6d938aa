package actions

import (
	"slices"

	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// mustExist refuses what a parameter names and does not exist.
func mustExist[T any](v *T, parameter, id string) (*T, *wire.Refusal) {
	if v == nil {
		return nil, wire.Refuse(404, "Invalid"+parameter+".NotFound", "The specified %s %q does not exist.", parameter, id)
	}
	return v, nil
}

// findInstance returns an instance that must exist.
func findInstance(req *Request, id string) (*state.Instance, *wire.Refusal) {
	return mustExist(req.Region.Instance(id), "InstanceId", id)
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
	return mustExist(req.Region.Disk(id), "DiskId", id)
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
	return mustExist(req.Region.Snapshot(id), "SnapshotId", id)
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
