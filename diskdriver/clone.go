package diskdriver

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

const (
	// temporaryLasts is how long a temporary snapshot may wait for its copy to
	// be made. If the call for the copy comes again later, it makes another.
	temporaryLasts = time.Hour

	// sweepEvery is how often temporary snapshots are looked for that a call
	// left behind.
	sweepEvery = 5 * time.Minute

	// tidyTime is how long a call waits for a disk to be made before its
	// temporary snapshot goes. After that the sweep sees to it.
	tidyTime = 10 * time.Second

	// ofClone tells the temporary snapshots' tokens from those of CSI.
	ofClone = "clone "
)

// temporary makes the snapshot that a copy is made from, and waits until it can
// be.
func (c *controller) temporary(ctx context.Context, spec disk.SnapshotSpec) (disk.Snapshot, error) {
	shot, err := c.cut(ctx, ofClone, spec)
	if err == nil && !shot.Usable {
		shot, err = c.snapshots.AwaitSnapshot(ctx, shot.ID, isUsable)
	}
	if err == nil && shot.State == disk.Failed {
		err = c.failedSnapshot(ctx, ofClone, spec.Name, shot)
	}
	return shot, err
}

// tidy deletes the temporary snapshots of a copy that is there. What stands in
// the way is not the caller's trouble: the sweep comes again.
func (c *controller) tidy(ctx context.Context, d disk.Disk) {
	ctx, cancel := context.WithTimeout(ctx, tidyTime)
	defer cancel()
	var err error
	if d.State == disk.Creating {
		d, err = c.disks.Await(ctx, d.ID, func(d disk.Disk) (bool, error) { return d.State != disk.Creating, nil })
	}
	var shots []disk.Snapshot
	if err == nil {
		marks := disk.Temporary(d.Name, c.config.ClusterID, "").Marks
		shots, err = c.snapshots.ListSnapshots(ctx, disk.SnapshotFilter{Tags: marks})
	}
	if err != nil {
		klog.ErrorS(err, "The temporary snapshot of a copy is left to the sweep", "volume", d.Name, "disk", d.ID)
		return
	}
	for _, shot := range shots {
		c.discard(ctx, shot, "the copy is there")
	}
}

// discard deletes a temporary snapshot.
func (c *controller) discard(ctx context.Context, shot disk.Snapshot, why string) {
	if err := c.snapshots.DeleteSnapshot(ctx, shot.ID); err != nil {
		klog.ErrorS(err, "A temporary snapshot is left to the next sweep", "snapshot", shot.ID, "why", why)
		return
	}
	klog.InfoS("Deleted a temporary snapshot", "snapshot", shot.ID, "disk", shot.Source, "why", why)
}

// sweeping sweeps all accounts again and again until the context ends.
func sweeping(ctx context.Context, accounts *accounts, busy *inflight) {
	for {
		select {
		case <-time.After(sweepEvery):
		case <-ctx.Done():
			return
		}
		for _, c := range accounts.all() {
			c.sweep(ctx, busy)
		}
	}
}

// sweep deletes the temporary snapshots that no call needs any more: those whose
// copy is there, whose copy was not made in time, or that have failed. It leaves
// alone the volumes that a call is working on.
func (c *controller) sweep(ctx context.Context, busy *inflight) {
	shots, err := c.snapshots.ListSnapshots(ctx, disk.SnapshotFilter{Tags: disk.TemporaryTags(c.config.ClusterID)})
	if err != nil {
		klog.ErrorS(err, "Looking for temporary snapshots failed")
		return
	}
	for _, shot := range shots {
		name := shot.Tags[disk.VolumeNameTag]
		if !busy.take(volumeNamed(name)) {
			continue
		}
		if why := c.needless(ctx, shot, name); why != "" {
			c.discard(ctx, shot, why)
		}
		busy.release(volumeNamed(name))
	}
}

// needless says why a temporary snapshot isn't needed any more; empty if it may
// be.
func (c *controller) needless(ctx context.Context, shot disk.Snapshot, name string) string {
	if shot.State == disk.Failed {
		return "it has failed"
	}
	d, found, err := c.named(ctx, name)
	switch {
	case err != nil:
		return ""
	case found && d.State != disk.Creating:
		return "the copy is there"
	case !found && shot.Cut() && time.Since(shot.Created) > temporaryLasts:
		return "the copy was not made in time"
	}
	return ""
}
