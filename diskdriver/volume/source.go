package volume

import (
	"context"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/params"
)

// source is what the data of a new volume come from; the zero value is nothing.
type source struct {
	snapshot disk.SnapshotID
	volume   disk.ID
}

// checkSource refuses a source that can't be one, or that ECS never had: its IDs
// of disks begin with d-, those of snapshots with s-.
func checkSource(content *csi.VolumeContentSource) error {
	shot, volume := content.GetSnapshot().GetSnapshotId(), content.GetVolume().GetVolumeId()
	switch {
	case content.GetSnapshot() != nil && shot == "":
		return disk.Errorf(disk.Invalid, "volume_content_source.snapshot.snapshot_id is missing")
	case content.GetSnapshot() != nil && !strings.HasPrefix(shot, "s-"):
		return disk.Errorf(disk.NotFound, "volume_content_source: %q is not the ID of a snapshot", shot)
	case content.GetVolume() != nil && volume == "":
		return disk.Errorf(disk.Invalid, "volume_content_source.volume.volume_id is missing")
	case content.GetVolume() != nil && !strings.HasPrefix(volume, "d-"):
		return disk.Errorf(disk.NotFound, "volume_content_source: %q is not the ID of a disk", volume)
	case content != nil && content.GetSnapshot() == nil && content.GetVolume() == nil:
		return disk.Errorf(disk.Invalid, "volume_content_source: %v is not supported; allowed are a snapshot and a volume", content)
	}
	return nil
}

// sourceOf returns what a request, or its class, says that a volume is to be made from.
func sourceOf(content *csi.VolumeContentSource, class params.Class) (source, error) {
	shot := disk.SnapshotID(content.GetSnapshot().GetSnapshotId())
	switch {
	case class.SnapshotID == "":
		return source{snapshot: shot, volume: disk.ID(content.GetVolume().GetVolumeId())}, nil
	case content.GetVolume() != nil:
		return source{}, disk.Errorf(disk.Invalid, "parameter %s: %q is not allowed for the copy of a volume", params.SnapshotParameter, class.SnapshotID)
	case shot != "" && shot != class.SnapshotID:
		return source{}, disk.Errorf(disk.Invalid, "parameter %s: %q contradicts the snapshot %s of volume_content_source", params.SnapshotParameter, class.SnapshotID, shot)
	}
	return source{snapshot: class.SnapshotID}, nil
}

// sourceSize reads a source, and returns its size; 0 if there is none. NotFound: it doesn't exist. Pending: the snapshot can't be used yet.
// A snapshot that the class names may be anybody's, which the operator allows.
func (c *Controller) sourceSize(ctx context.Context, from source, class params.Class) (disk.GiB, error) {
	if from.volume != "" {
		d, err := c.get(ctx, from.volume)
		if err == nil {
			err = c.config.Owner.CheckDisk(d)
		}
		return d.Size, err
	}
	if from.snapshot == "" {
		return 0, nil
	}
	shot, err := c.snapshots.Get(ctx, from.snapshot)
	if err == nil && class.SnapshotID == "" {
		err = c.config.Owner.CheckRestore(shot)
	}
	switch {
	case err != nil:
		return shot.Size, err
	case shot.State == disk.Failed:
		return shot.Size, disk.Errorf(disk.Invalid, "snapshot %s has failed, and nothing can be made from it", shot.ID)
	case !shot.Usable:
		return shot.Size, disk.Errorf(disk.Pending, "snapshot %s can't be used yet: %s", shot.ID, shot.Phase())
	}
	return shot.Size, nil
}

// afterwards decides what it means that nothing could be made from a source now:
// nothing if the volume was made from it before, for then the call is a repeated
// one.
func (c *Controller) afterwards(ctx context.Context, name string, refused error) error {
	if record := c.creations.Of(name, time.Now()); !record.MayExist() {
		return refused
	}
	_, found, err := c.finder(name).Look(ctx)
	if err == nil && !found {
		return refused
	}
	return err
}

// fill has an order's volume be made from what the request names, and be large enough for it. A copy that was made before
// its source grew is what was asked for, so a repeated call looks for it.
func (c *Controller) fill(ctx context.Context, req *csi.CreateVolumeRequest, o *order) error {
	from, err := sourceOf(req.GetVolumeContentSource(), o.class)
	if err != nil {
		return err
	}
	size, err := c.sourceSize(ctx, from, o.class)
	if disk.KindOf(err) == disk.NotFound {
		err = c.afterwards(ctx, req.GetName(), err)
	}
	if err != nil {
		return err
	}
	sized, err := fit(o.want, size)
	if err != nil && from.volume != "" {
		sized, err = o.want, c.afterwards(ctx, req.GetName(), err)
	}
	if err != nil {
		return err
	}
	o.sized, o.spec.SnapshotID = sized, string(from.snapshot)
	if from.volume == "" {
		o.want = sized
		return nil
	}
	o.spec.CloneOf = from.volume // which may have grown since the copy was made
	o.spec.Tags[disk.CloneTag] = string(from.volume)
	return nil
}

// fit makes the size hold the source. A smaller one is OutOfRange (CSI spec,
// CreateVolume Errors); if none is asked for it is that of the source.
func fit(want disk.Wanted, source disk.GiB) (disk.Wanted, error) {
	switch {
	case want.Least == 0 && source <= want.Most:
		want.Least = source
	case want.Least < source:
		return want, disk.Errorf(disk.OutOfRange, "capacity_range: the source has %d GiB, and a volume made from it has no less; asked for is %s", source, want)
	}
	return want, nil
}
