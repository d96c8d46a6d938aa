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

// temporaries are the snapshots through which disks are copied.
type temporaries struct {
	clusterID string
	owner     disk.Owner
	snapshots Snapshots
	taker     Taker
	disks     Disks
	named     func(ctx context.Context, name string, proof bool) (disk.Disk, bool, error)

	mu   sync.Mutex
	idle map[string]idle // by the copy's volume
}

// idle is since when this process was not asked for a copy that could be made.
type idle struct {
	since time.Time
	asked bool // it was before, since the snapshot can be used
}

// take makes the snapshot that a copy is made from, and waits until it can
// be.
func (t *temporaries) take(ctx context.Context, spec disk.SnapshotSpec) (disk.Snapshot, error) {
	t.mu.Lock()
	t.idle[spec.Name] = idle{since: time.Now(), asked: true}
	t.mu.Unlock()
	shot, err := t.taker.Take(ctx, ofClone, spec)
	if err != nil {
		return shot, err
	}
	return t.taker.Await(ctx, ofClone, spec.Name, shot, func(s disk.Snapshot) bool { return s.Usable })
}

// release deletes the temporary snapshots of a copy that is there. What stands in
// the way is not the caller's trouble: the sweep comes again.
func (t *temporaries) release(ctx context.Context, d disk.Disk) {
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
func (t *temporaries) discard(ctx context.Context, shot disk.Snapshot, why string) {
	if err := t.owner.CheckSnapshot(shot); err != nil {
		klog.ErrorS(err, "A temporary snapshot is not deleted", "snapshot", shot.ID, "why", why)
		return
	}
	if err := t.snapshots.DeleteSnapshot(ctx, shot.ID); err != nil {
		klog.ErrorS(err, "A temporary snapshot is left to the next sweep", "snapshot", shot.ID, "why", why)
		return
	}
	klog.InfoS("Deleted a temporary snapshot", "snapshot", shot.ID, "disk", shot.Source, "why", why)
}

// sweep deletes the temporary snapshots that no call needs any more: those whose
// copy is there, whose copy nobody asks for any more, or that have failed. It leaves
// alone the volumes that can't be reserved, for a call is working on them.
func (t *temporaries) sweep(ctx context.Context, reserve func(name string) (release func(), ok bool)) {
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
	t.forget(shots)
}

// forget drops what is known of volumes that have no temporary snapshot.
func (t *temporaries) forget(shots []disk.Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.idle, func(name string, i idle) bool {
		return time.Since(i.since) > TemporaryKept && !slices.ContainsFunc(shots, func(s disk.Snapshot) bool { return s.Tags[disk.VolumeNameTag] == name })
	})
}

// needless says why a temporary snapshot isn't needed any more; empty if it may
// be.
func (t *temporaries) needless(ctx context.Context, shot disk.Snapshot, name string) string {
	if shot.State == disk.Failed {
		return "it has failed"
	}
	d, found, err := t.named(ctx, name, false)
	switch {
	case err != nil:
		return ""
	case found && d.State != disk.Creating:
		return "the copy is there"
	case !found && t.isForgotten(shot, name):
		return "nobody asks for the copy any more"
	}
	return ""
}

// isForgotten says whether nobody asks for a copy any more. Whoever waits for the
// snapshot takes it as soon as it can be used; that another process is asked shows
// in nothing else.
func (t *temporaries) isForgotten(shot disk.Snapshot, name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i, known := t.idle[name]
	if !known || !shot.Usable {
		t.idle[name] = idle{since: time.Now()} // who was asked before it could be used need not be who is asked now
		return false
	}
	return time.Since(i.since) > TemporaryKept && (i.asked || time.Since(shot.Created) > OrphanKept)
}
