package volume

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/internal/sleep"
)

const (
	// archiveWait is how long one call waits for an archive. Copying a large disk
	// takes longer; the call comes again.
	archiveWait = 30 * time.Second

	// ofArchive tells the archives' tokens from those of CSI.
	ofArchive = "archive "
)

// archive sees to it that a disk is kept as a snapshot before it goes, if its
// tags say so. It returns nil when the disk may be deleted: it wants no archive,
// there is nothing in it, or all of it is in the archive. A call that is repeated
// finds the archive of the one before. It returns the disk as it was found, without
// a state if it was not.
func (c *Controller) archive(ctx context.Context, id disk.ID) (disk.Disk, error) {
	d, err := c.ecs.GetCached(ctx, id)
	if err != nil {
		return disk.Disk{}, c.confirmGone(ctx, id, err)
	}
	if err := c.config.Owner.CheckDisk(d); err != nil {
		return d, err
	}
	spec, wanted := d.Archive(c.config.Owner.Cluster)
	if !wanted {
		return d, nil
	}
	if err := heldBack(d, errInUse); err != nil {
		return d, err // it may be let go, and written to, before it is deleted
	}
	if sleep.For(ctx, time.Until(d.ReleasedBy())) != nil { // an archive of that moment could pass for one of a later use that ends in it
		return d, disk.Errorf(disk.Pending, "the archive is made at %s, when the time at which ECS says that the disk was detached last is over", d.ReleasedBy().Format(time.TimeOnly))
	}
	shot, err := c.archived(ctx, spec)
	switch {
	case errors.Is(err, disk.ErrBlank):
		return d, nil
	case err != nil:
		return d, fmt.Errorf("the disk is deleted when its archive is safe: %w", err)
	}
	again, err := c.ecs.Get(ctx, id)
	if err != nil {
		return disk.Disk{}, c.confirmGone(ctx, id, err)
	}
	if now, _ := again.Archive(c.config.Owner.Cluster); now.Marks[disk.ArchiveStateTag] != spec.Marks[disk.ArchiveStateTag] {
		return d, &disk.Error{Disk: id, Kind: disk.Pending, Err: fmt.Errorf("the disk was attached while its archive %s was made, and gets another", shot.ID)}
	}
	if err := heldBack(again, errInUse); err != nil {
		return again, err
	}
	klog.InfoS("Archived a disk that is deleted now", "disk", id, "snapshot", shot.ID, "name", spec.Name)
	return again, nil
}

var errInUse = disk.Errorf(disk.InUse, "only a disk that nobody uses is archived")

// archived makes the archive, or finds it, and waits until ECS says that all of it
// is copied.
func (c *Controller) archived(ctx context.Context, spec disk.SnapshotSpec) (disk.Snapshot, error) {
	what := ofArchive + spec.Marks[disk.ArchiveStateTag] + " "
	shot, err := c.snapshots.Take(ctx, what, spec)
	if err != nil {
		return shot, err
	}
	patient, cancel := context.WithTimeout(ctx, archiveWait)
	defer cancel()
	return c.snapshots.Await(patient, what, spec.Name, shot, disk.Snapshot.Complete)
}
