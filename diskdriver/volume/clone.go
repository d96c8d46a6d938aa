package volume

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

const (
	// TemporaryKept is how long a temporary snapshot may wait for its copy to
	// be made. If the call for the copy comes again later, it makes another.
	TemporaryKept = time.Hour

	// SweepEvery is how often temporary snapshots are looked for that a call
	// left behind.
	SweepEvery = 5 * time.Minute

	// releaseTime is how long a call waits at most for a disk to be made before
	// its temporary snapshot goes, and half of the time that the call has left.
	// After that the sweep sees to it.
	releaseTime = 10 * time.Second

	// ofClone tells the temporary snapshots' tokens from those of CSI.
	ofClone = "clone "
)

// temporaries are the snapshots through which disks are copied.
type temporaries struct {
	clusterID string
	snapshots Snapshots
	taker     Taker
	disks     Disks
	named     func(ctx context.Context, name string, proof bool) (disk.Disk, bool, error)
}

// take makes the snapshot that a copy is made from, and waits until it can
// be.
func (t temporaries) take(ctx context.Context, spec disk.SnapshotSpec) (disk.Snapshot, error) {
	shot, err := t.taker.Take(ctx, ofClone, spec)
	if err != nil {
		return shot, err
	}
	return t.taker.Await(ctx, ofClone, spec.Name, shot, func(s disk.Snapshot) bool { return s.Usable })
}

// release deletes the temporary snapshots of a copy that is there. What stands in
// the way is not the caller's trouble: the sweep comes again.
func (t temporaries) release(ctx context.Context, d disk.Disk) {
	limit := releaseTime
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var err error
	if d.State == disk.Creating {
		d, err = t.disks.Await(ctx, d.ID, func(d disk.Disk) (bool, error) { return d.State != disk.Creating, nil })
	}
	var shots []disk.Snapshot
	if err == nil {
		marks := disk.Temporary(d.Name, t.clusterID, "").Marks
		shots, err = t.snapshots.ListSnapshots(ctx, disk.SnapshotFilter{Tags: marks})
	}
	if err != nil {
		klog.ErrorS(err, "The temporary snapshot of a copy is left to the sweep", "volume", d.Name, "disk", d.ID)
		return
	}
	for _, shot := range shots {
		t.discard(ctx, shot, "the copy is there")
	}
}

// discard deletes a temporary snapshot.
func (t temporaries) discard(ctx context.Context, shot disk.Snapshot, why string) {
	if err := t.snapshots.DeleteSnapshot(ctx, shot.ID); err != nil {
		klog.ErrorS(err, "A temporary snapshot is left to the next sweep", "snapshot", shot.ID, "why", why)
		return
	}
	klog.InfoS("Deleted a temporary snapshot", "snapshot", shot.ID, "disk", shot.Source, "why", why)
}

// sweep deletes the temporary snapshots that no call needs any more: those whose
// copy is there, whose copy was not made in time, or that have failed. It leaves
// alone the volumes that can't be reserved, for a call is working on them.
func (t temporaries) sweep(ctx context.Context, reserve func(name string) (release func(), ok bool)) {
	shots, err := t.snapshots.ListSnapshots(ctx, disk.SnapshotFilter{Tags: disk.TemporaryTags(t.clusterID)})
	if err != nil {
		klog.ErrorS(err, "Looking for temporary snapshots failed")
		return
	}
	for _, shot := range shots {
		name := shot.Tags[disk.VolumeNameTag]
		release, ok := reserve(name)
		if !ok {
			continue
		}
		if why := t.needless(ctx, shot, name); why != "" {
			t.discard(ctx, shot, why)
		}
		release()
	}
}

// needless says why a temporary snapshot isn't needed any more; empty if it may
// be.
func (t temporaries) needless(ctx context.Context, shot disk.Snapshot, name string) string {
	if shot.State == disk.Failed {
		return "it has failed"
	}
	d, found, err := t.named(ctx, name, false)
	switch {
	case err != nil:
		return ""
	case found && d.State != disk.Creating:
		return "the copy is there"
	case !found && shot.Taken() && time.Since(shot.Created) > TemporaryKept:
		return "the copy was not made in time"
	}
	return ""
}
