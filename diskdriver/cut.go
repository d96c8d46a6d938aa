package diskdriver

import (
	"context"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/creation"
	"github.com/topodisk/topodisk/diskdriver/disk"
)

// ofCSI is the what of snapshots that the CO asked for.
const ofCSI = ""

// cut makes a snapshot, or finds the one that was made before, and waits until
// its point in time has passed. what tells snapshots of CSI from those that the
// driver makes for itself under the same name.
func (c *controller) cut(ctx context.Context, what string, spec disk.SnapshotSpec) (disk.Snapshot, error) {
	name := what + spec.Name
	spec.Tags = spec.Tags.And(c.config.ExtraTags)
	await := func(ctx context.Context, id disk.SnapshotID) (disk.Snapshot, error) {
		shot, err := c.snapshots.AwaitSnapshot(ctx, id, isCut)
		if shot.State == disk.Failed {
			return shot, c.failedSnapshot(ctx, what, spec.Name, shot)
		}
		return shot, err
	}
	c.shots.Begin(name, isFirstCall(ctx), time.Now())
	shot, err := creator[disk.Snapshot]{
		records: c.shots, name: name,
		make: func(ctx context.Context, token disk.Token) (disk.Snapshot, creation.Answer, error) {
			id, err := c.snapshots.CreateSnapshot(ctx, spec, token)
			if err != nil {
				return disk.Snapshot{}, answerOfSnapshot(err), err
			}
			shot, err := await(ctx, id)
			return shot, answerOfWait(err), err
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
	}.obtain(ctx)
	if err == nil {
		err = spec.Matches(shot)
	}
	return shot, err
}

// answerOfSnapshot is answerOf for a snapshot or a group: NotFound is what it was
// to be made from.
func answerOfSnapshot(err error) creation.Answer {
	if disk.KindOf(err) == disk.NotFound {
		return creation.Refused
	}
	return answerOf(err)
}

// answerOfWait says what the end of a wait means for what ECS has given the ID
// of: it exists, unless no read finds it.
func answerOfWait(err error) creation.Answer {
	if err != nil && disk.KindOf(err) == disk.NotFound {
		return creation.Used
	}
	return creation.Made
}

// isCut ends a wait for a snapshot's point in time.
func isCut(s disk.Snapshot) (bool, error) { return s.Cut() || s.State == disk.Failed, nil }

// isUsable ends a wait for a snapshot that a disk is to be made from.
func isUsable(s disk.Snapshot) (bool, error) { return s.Usable || s.State == disk.Failed, nil }

// failedSnapshot is the error of a snapshot that has failed. One that was cut
// for CSI may be known by its ID, and who knows it has to delete it. Any other
// goes now, and the next call makes another: for CSI that is another moment, so
// this one has failed for good; what the driver makes one for is only delayed.
func (c *controller) failedSnapshot(ctx context.Context, what, name string, shot disk.Snapshot) error {
	kind := disk.Pending
	if what == ofCSI {
		kind = disk.Unexpected
		if shot.Cut() {
			return hasFailed(shot)
		}
	}
	if err := c.snapshots.DeleteSnapshot(ctx, shot.ID); err != nil {
		return fmt.Errorf("snapshot %s has failed, and deleting it failed too: %w", shot.ID, err)
	}
	klog.InfoS("Deleted a snapshot that has failed", "snapshot", shot.ID, "disk", shot.Source)
	c.shots.Update(what+name, time.Now(), func(r *creation.Record) { r.Gone(time.Now()) })
	return disk.Errorf(kind, "snapshot %s has failed; it is deleted, and the next call makes another", shot.ID)
}
