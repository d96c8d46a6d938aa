package diskdriver

import (
	"context"

	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// cut makes a snapshot, or finds the one that was made before, and waits until
// its point in time has passed. what tells snapshots of CSI from those that the
// driver makes for itself under the same name.
func (c *controller) cut(ctx context.Context, what string, spec disk.SnapshotSpec) (disk.Snapshot, error) {
	name := what + spec.Name
	await := func(ctx context.Context, id disk.SnapshotID) (disk.Snapshot, error) {
		shot, err := c.snapshots.AwaitSnapshot(ctx, id, isCut)
		if shot.State == disk.Failed {
			return shot, c.failedSnapshot(ctx, name, shot)
		}
		return shot, err
	}
	shot, err := creation[disk.Snapshot]{
		name: name,
		make: func(ctx context.Context, token disk.Token) (disk.Snapshot, bool, error) {
			id, err := c.snapshots.CreateSnapshot(ctx, spec, token)
			if err != nil {
				return disk.Snapshot{}, disk.KindOf(err) == disk.Mismatch, err
			}
			shot, err := await(ctx, id)
			return shot, disk.KindOf(err) == disk.NotFound, err
		},
		find: func(ctx context.Context) (disk.Snapshot, bool, error) {
			shots, err := c.snapshots.ListSnapshots(ctx, disk.SnapshotFilter{Tags: spec.Marks})
			switch {
			case err != nil:
				return disk.Snapshot{}, false, unread(err)
			case len(shots) == 0:
				return disk.Snapshot{}, false, nil
			case spec.Matches(shots[0]) != nil:
				return shots[0], false, spec.Matches(shots[0])
			}
			shot, err := await(ctx, shots[0].ID)
			return shot, true, err
		},
	}.run(ctx, c.shots)
	if err == nil {
		err = spec.Matches(shot)
	}
	return shot, err
}

// isCut ends a wait for a snapshot's point in time.
func isCut(s disk.Snapshot) (bool, error) { return s.Cut() || s.State == disk.Failed, nil }

// isUsable ends a wait for a snapshot that a disk is to be made from.
func isUsable(s disk.Snapshot) (bool, error) { return s.Usable || s.State == disk.Failed, nil }

// failedSnapshot is the error of a snapshot that has failed. Once it was cut
// somebody may know its ID, who has to delete it. Before, nobody does, so it
// goes now, and the next call makes a new one.
func (c *controller) failedSnapshot(ctx context.Context, name string, shot disk.Snapshot) error {
	if shot.Cut() {
		return hasFailed(shot)
	}
	if err := c.snapshots.DeleteSnapshot(ctx, shot.ID); err != nil {
		return disk.Errorf(disk.Unexpected, "snapshot %s has failed before it held anything, and deleting it failed too: %w", shot.ID, err)
	}
	klog.InfoS("Deleted a snapshot that has failed before it held anything", "snapshot", shot.ID, "disk", shot.Source)
	c.shots.keep(name, c.shots.of(name).next())
	return disk.Errorf(disk.Unexpected, "snapshot %s has failed before it held anything; it is deleted, and the next call makes another", shot.ID)
}
