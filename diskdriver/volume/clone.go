package volume

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

const (
	// TemporaryKept is how long a temporary snapshot that can be used is kept after
	// the copy was last asked for. If the call for the copy comes again later, it
	// makes another.
	TemporaryKept = time.Hour

	// OrphanKept is how old a temporary snapshot must be of whose copy this
	// process was never asked, for another one may be asked for it still.
	OrphanKept = 24 * time.Hour

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

// copies are the volumes that this process was asked for as copies of others, by their names.
type copies struct {
	mu   sync.Mutex
	idle map[string]idle
}

// idle is since when this process was not asked for a copy that could be made.
type idle struct {
	since time.Time
	asked bool // it was before, since the snapshot can be used
}

// takeTemporary makes the snapshot that a copy is made from, and waits until it can
// be.
func (c *Controller) takeTemporary(ctx context.Context, spec disk.SnapshotSpec) (disk.Snapshot, error) {
	c.copies.asked(spec.Name)
	shot, err := c.snapshots.Take(ctx, ofClone, spec)
	if err != nil {
		return shot, err
	}
	return c.snapshots.Await(ctx, ofClone, spec.Name, shot, func(s disk.Snapshot) bool { return s.Usable })
}

// releaseTemporary deletes the temporary snapshots of a copy that is there. What stands in
// the way is not the caller's trouble: the sweep comes again.
func (c *Controller) releaseTemporary(ctx context.Context, d disk.Disk) {
	limit := releaseTime
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	d, err := c.awaitMade(ctx, d)
	var shots []disk.Snapshot
	if err == nil {
		marks := disk.Temporary(d.Name, c.config.Owner.Cluster, "").Marks
		shots, err = c.ecs.ListSnapshots(ctx, disk.SnapshotFilter{Tags: marks})
	}
	if err != nil {
		klog.ErrorS(err, "The temporary snapshot of a copy is left to the sweep", "volume", d.Name, "disk", d.ID)
		return
	}
	for _, shot := range shots {
		c.discardTemporary(ctx, shot, "the copy is there")
	}
}

// discardTemporary deletes a temporary snapshot.
func (c *Controller) discardTemporary(ctx context.Context, shot disk.Snapshot, why string) {
	if err := c.config.Owner.CheckSnapshot(shot); err != nil {
		klog.ErrorS(err, "A temporary snapshot is not deleted", "snapshot", shot.ID, "why", why)
		return
	}
	if err := c.ecs.DeleteSnapshot(ctx, shot.ID); err != nil {
		klog.ErrorS(err, "A temporary snapshot is left to the next sweep", "snapshot", shot.ID, "why", why)
		return
	}
	klog.InfoS("Deleted a temporary snapshot", "snapshot", shot.ID, "disk", shot.Source, "why", why)
}

// Sweep deletes the temporary snapshots that no call needs any more: those whose
// copy is there, whose copy nobody asks for any more, or that have failed. reserve keeps
// calls off a volume by its name, until it is released; not ok: one works on it, and it is left alone.
func (c *Controller) Sweep(ctx context.Context, reserve func(name string) (release func(), ok bool)) {
	shots, err := c.ecs.ListSnapshots(ctx, disk.SnapshotFilter{Tags: disk.TemporaryTags(c.config.Owner.Cluster)})
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
		if why := c.needless(ctx, shot, name); why != "" {
			c.discardTemporary(ctx, shot, why)
		}
		release()
	}
	c.copies.forget(shots)
}

// asked notes that this process is asked for a copy.
func (c *copies) asked(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idle[name] = idle{since: time.Now(), asked: true}
}

// forget drops what is known of volumes that have no temporary snapshot.
func (c *copies) forget(shots []disk.Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.idle, func(name string, i idle) bool {
		return time.Since(i.since) > TemporaryKept && !slices.ContainsFunc(shots, func(s disk.Snapshot) bool { return s.Tags[disk.VolumeNameTag] == name })
	})
}

// needless says why a temporary snapshot isn't needed any more; empty if it may
// be.
func (c *Controller) needless(ctx context.Context, shot disk.Snapshot, name string) string {
	if shot.State == disk.Failed {
		return "it has failed"
	}
	d, found, err := c.named(ctx, name, false)
	switch {
	case err != nil:
		return ""
	case found && d.State != disk.Creating:
		return "the copy is there"
	case !found && c.copies.isForgotten(shot, name):
		return "nobody asks for the copy any more"
	}
	return ""
}

// isForgotten says whether nobody asks for a copy any more. Whoever waits for the
// snapshot takes it as soon as it can be used; that another process is asked shows
// in nothing else.
func (c *copies) isForgotten(shot disk.Snapshot, name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, known := c.idle[name]
	if !known || !shot.Usable {
		c.idle[name] = idle{since: time.Now()} // who was asked before it could be used need not be who is asked now
		return false
	}
	return time.Since(i.since) > TemporaryKept && (i.asked || time.Since(shot.Created) > OrphanKept)
}
