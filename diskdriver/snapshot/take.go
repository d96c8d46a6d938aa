package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/creation"
	"github.com/topodisk/topodisk/diskdriver/disk"
)

// forCSI is the purpose of the snapshots that the CO asked for.
const forCSI = ""

// Take makes a snapshot, or finds the one that was made before, and waits until
// its point in time has passed. The purpose tells the client tokens of snapshots
// of one name apart.
func (c *Controller) Take(ctx context.Context, purpose string, spec disk.SnapshotSpec) (disk.Snapshot, error) {
	spec.Tags = spec.Tags.And(c.config.ExtraTags)
	return taking[disk.Snapshot, disk.SnapshotID]{
		records: c.records, name: purpose + spec.Name,
		id: func(shot disk.Snapshot) disk.SnapshotID { return shot.ID },
		create: func(ctx context.Context, token disk.Token) (disk.SnapshotID, error) {
			if err := c.checkSources(ctx, spec.Source); err != nil {
				return "", err
			}
			return c.ecs.CreateSnapshot(ctx, spec, token)
		},
		find: func(ctx context.Context) ([]disk.Snapshot, error) {
			shots, err := c.ecs.ListSnapshots(ctx, disk.SnapshotFilter{Tags: spec.Marks})
			return slices.DeleteFunc(shots, func(s disk.Snapshot) bool { return c.config.Owner.IsOthers(s.Tags) }), err
		},
		matches: spec.Matches, whole: func(disk.Snapshot) bool { return true },
		await: func(ctx context.Context, id disk.SnapshotID) (disk.Snapshot, error) {
			return c.await(ctx, purpose, spec.Name, id, disk.Snapshot.Taken)
		},
		checkGone: c.ecs.CheckSnapshotGone,
	}.take(ctx)
}

// Await waits until a snapshot that Take has returned is far enough. One that fails
// goes, and the next Take makes another.
func (c *Controller) Await(ctx context.Context, purpose, name string, shot disk.Snapshot, enough func(disk.Snapshot) bool) (disk.Snapshot, error) {
	if enough(shot) {
		return shot, nil
	}
	shot, err := c.await(ctx, purpose, name, shot.ID, enough)
	return shot, lostSight(err)
}

func (c *Controller) await(ctx context.Context, purpose, name string, id disk.SnapshotID, enough func(disk.Snapshot) bool) (disk.Snapshot, error) {
	shot, err := c.ecs.AwaitSnapshot(ctx, id, func(s disk.Snapshot) (bool, error) { return enough(s) || s.State == disk.Failed, nil })
	if shot.State == disk.Failed {
		return shot, c.failed(ctx, purpose, name, shot)
	}
	return shot, notRead(err)
}

// failed is the error of a snapshot that has failed. One that was taken for CSI
// may be known by its ID, and who knows it has to delete it. Any other goes now,
// and the next call makes another: for CSI that is another moment, so this one has
// failed for good; what the driver makes one for is only delayed.
func (c *Controller) failed(ctx context.Context, purpose, name string, shot disk.Snapshot) error {
	kind := disk.Pending
	if purpose == forCSI {
		kind = disk.Unexpected
		if shot.Taken() && mayBeKnown(c.records, name, shot.Created) {
			return hasFailed(shot)
		}
	}
	if err := c.ecs.DeleteSnapshot(ctx, shot.ID); err != nil {
		return disk.Errorf(disk.Pending, "snapshot %s has failed, and deleting it failed too: %w", shot.ID, err)
	}
	klog.InfoS("Deleted a snapshot that has failed", "snapshot", shot.ID, "disk", shot.Source)
	c.records.Update(purpose+name, time.Now(), (*creation.Record).Gone)
	return disk.Errorf(kind, "snapshot %s has failed; it is deleted, and the next call makes another", shot.ID)
}

// checkSources refuses to take snapshots of disks that aren't the cluster's. Of one that no read shows ECS tells.
func (c *Controller) checkSources(ctx context.Context, sources ...disk.ID) error {
	for _, id := range sources {
		d, err := c.ecs.GetCached(ctx, id)
		if err == nil {
			err = c.config.Owner.CheckDisk(d)
		}
		if err != nil && disk.KindOf(err) != disk.NotFound {
			return err
		}
	}
	return nil
}

// taking is how a snapshot of a name is taken, once, or a group of snapshots.
type taking[T any, ID ~string] struct {
	records *creation.Table
	name    string // by which the Record and the client token go
	id      func(T) ID
	create  func(ctx context.Context, token disk.Token) (ID, error)
	find    func(ctx context.Context) ([]T, error) // by the marks
	matches func(T) error                          // nil: it is what is asked for
	whole   func(T) bool                           // whether a read shows all of it, so that it can be compared
	// await waits until it is taken. NotFound: no read shows it. An error that is
	// final says that it has failed.
	await func(ctx context.Context, id ID) (T, error)
	// checkGone returns nil if what no read shows is gone. disk.ErrUntold: nobody can tell.
	checkGone func(ctx context.Context, id ID) error
}

// take makes it, or finds the one that was made before, and waits until it is
// taken.
func (t taking[T, ID]) take(ctx context.Context) (T, error) {
	t.records.Called(ctx, t.name)
	taken, err := creation.Maker[T]{Records: t.records, Name: t.name, Make: t.send, Find: t.look}.Obtain(ctx)
	if err == nil {
		err = t.matches(taken)
	}
	if err == nil {
		t.update(func(r *creation.Record) { r.Returned(string(t.id(taken))) })
	}
	return taken, err
}

// send sends a create, and waits.
func (t taking[T, ID]) send(ctx context.Context, token disk.Token) (taken T, answer creation.Answer, err error) {
	id, err := t.create(ctx, token)
	switch {
	case err != nil && disk.KindOf(err) == disk.NotFound: // what it is to be made from
		return taken, creation.Refused, err
	case err != nil:
		return taken, creation.AnswerOf(err), err
	}
	taken, err = t.await(ctx, id)
	if err != nil && disk.KindOf(err) == disk.NotFound {
		t.update(func(r *creation.Record) { r.Unseen(string(id)) })
		return taken, creation.Unseen, err
	}
	return taken, creation.Made, err
}

// look looks for the one that was made before, and waits. That none is found uses
// up the token only if what was made under it is gone: else an account that may
// not see it would make another with every token.
func (t taking[T, ID]) look(ctx context.Context, proof bool) (taken T, found bool, err error) {
	shown, err := t.find(ctx)
	record := t.records.Of(t.name, time.Now())
	if unseen := record.UsedFor(); err == nil && len(shown) == 0 && proof && unseen != "" {
		if err = t.checkGone(ctx, ID(unseen)); errors.Is(err, disk.ErrUntold) && t.guess() {
			err = nil
		}
	}
	switch {
	case err != nil:
		return taken, false, creation.NotRead(err)
	case len(shown) == 0:
		return taken, false, nil
	}
	if t.whole(shown[0]) {
		if err := t.matches(shown[0]); err != nil {
			return shown[0], false, err
		}
	}
	taken, err = t.await(ctx, t.id(shown[0]))
	return taken, true, lostSight(err)
}

// guess says, once, that what was made is gone although nobody can tell: that of a name that is used again may be, and what is made
// next is new, and would be shown.
func (t taking[T, ID]) guess() (guessed bool) {
	t.update(func(r *creation.Record) { guessed = r.Guess() })
	return guessed
}

func (t taking[T, ID]) update(change func(*creation.Record)) {
	t.records.Update(t.name, time.Now(), change)
}

// notRead is the error of a wait for what ECS has given the ID of, but for
// NotFound: whatever kept the reads from their answer, it is there.
func notRead(err error) error {
	switch disk.KindOf(err) {
	case disk.NotFound, disk.Pending, disk.Throttled, disk.Unreachable, disk.UnknownOutcome:
		return err
	}
	if err == nil {
		return nil
	}
	return &disk.Error{Kind: disk.UnknownOutcome, Err: fmt.Errorf("ECS gave its ID, but the reads that should show it failed: %w", err)}
}

// lostSight is the error of a wait for what a read has shown before: that the next
// ones don't is not for good.
func lostSight(err error) error {
	if err != nil && disk.KindOf(err) == disk.NotFound {
		return disk.Errorf(disk.Pending, "it was shown a moment ago: %w", err)
	}
	return err
}

// mayBeKnown says whether somebody may know the ID of what was taken at a time.
func mayBeKnown(records *creation.Table, name string, taken time.Time) bool {
	record := records.Of(name, time.Now())
	return !record.Unheard(taken)
}
