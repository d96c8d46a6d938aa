package snapshot

import (
	"context"
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
