package snapshot

import (
	"context"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/creation"
	"github.com/topodisk/topodisk/diskdriver/creation/executor"
	"github.com/topodisk/topodisk/diskdriver/disk"
)

// forCSI is the purpose of the snapshots that the CO asked for.
const forCSI = ""

// Taker takes snapshots of disks: for CSI, and those that the driver needs for
// itself.
type Taker struct {
	ecs       Snapshots
	records   *creation.Table
	extraTags disk.Tags
}

// NewTaker returns a Taker. Every snapshot gets the extra tags, unless it has
// others of the same keys.
func NewTaker(ecs Snapshots, extraTags disk.Tags) *Taker {
	return &Taker{ecs: ecs, records: creation.NewTable(), extraTags: extraTags}
}

// Take makes a snapshot, or finds the one that was made before, and waits until
// its point in time has passed. The purpose tells the client tokens of snapshots
// of one name apart.
func (t *Taker) Take(ctx context.Context, purpose string, spec disk.SnapshotSpec) (disk.Snapshot, error) {
	name := purpose + spec.Name
	spec.Tags = spec.Tags.And(t.extraTags)
	await := func(ctx context.Context, id disk.SnapshotID) (disk.Snapshot, error) {
		shot, err := t.ecs.AwaitSnapshot(ctx, id, isTaken)
		if shot.State == disk.Failed {
			return shot, t.Failed(ctx, purpose, spec.Name, shot)
		}
		return shot, err
	}
	executor.Begin(ctx, t.records, name)
	shot, err := executor.Maker[disk.Snapshot]{
		Records: t.records, Name: name,
		Make: func(ctx context.Context, token disk.Token) (disk.Snapshot, creation.Answer, error) {
			id, err := t.ecs.CreateSnapshot(ctx, spec, token)
			if err != nil {
				return disk.Snapshot{}, answerOfSnapshot(err), err
			}
			shot, err := await(ctx, id)
			return shot, answerOfWait(err), err
		},
		Find: func(ctx context.Context, _ bool) (disk.Snapshot, bool, error) {
			shots, err := t.ecs.ListSnapshots(ctx, disk.SnapshotFilter{Tags: spec.Marks})
			switch {
			case err != nil:
				return disk.Snapshot{}, false, executor.Unread(err)
			case len(shots) == 0:
				return disk.Snapshot{}, false, nil
			case spec.Matches(shots[0]) != nil:
				return shots[0], false, spec.Matches(shots[0])
			}
			shot, err := await(ctx, shots[0].ID)
			return shot, true, err
		},
	}.Obtain(ctx)
	if err == nil {
		err = spec.Matches(shot)
	}
	return shot, err
}

// answerOfSnapshot is creation.AnswerOf for a snapshot or a group: NotFound is what it was
// to be made from.
func answerOfSnapshot(err error) creation.Answer {
	if disk.KindOf(err) == disk.NotFound {
		return creation.Refused
	}
	return creation.AnswerOf(err)
}

// answerOfWait says what the end of a wait means for what ECS has given the ID
// of: it exists, unless no read finds it.
func answerOfWait(err error) creation.Answer {
	if err != nil && disk.KindOf(err) == disk.NotFound {
		return creation.Unseen
	}
	return creation.Made
}

// isTaken ends a wait for a snapshot's point in time.
func isTaken(s disk.Snapshot) (bool, error) { return s.Taken() || s.State == disk.Failed, nil }

// Failed is the error of a snapshot that has failed. One that was taken
// for CSI may be known by its ID, and who knows it has to delete it. Any other
// goes now, and the next call makes another: for CSI that is another moment, so
// this one has failed for good; what the driver makes one for is only delayed.
func (t *Taker) Failed(ctx context.Context, purpose, name string, shot disk.Snapshot) error {
	kind := disk.Pending
	if purpose == forCSI {
		kind = disk.Unexpected
		if shot.Taken() {
			return hasFailed(shot)
		}
	}
	if err := t.ecs.DeleteSnapshot(ctx, shot.ID); err != nil {
		return fmt.Errorf("snapshot %s has failed, and deleting it failed too: %w", shot.ID, err)
	}
	klog.InfoS("Deleted a snapshot that has failed", "snapshot", shot.ID, "disk", shot.Source)
	t.records.Update(purpose+name, time.Now(), (*creation.Record).Gone)
	return disk.Errorf(kind, "snapshot %s has failed; it is deleted, and the next call makes another", shot.ID)
}
