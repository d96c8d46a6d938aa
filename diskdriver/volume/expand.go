package volume

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// ControllerExpandVolume makes a disk larger, in use or not (CSI spec,
// ControllerExpandVolume). A disk that is large enough stays as it is. The
// answer is the size that the disk has. A file system has to grow on the node
// then; a block volume has none.
func (c *Controller) ControllerExpandVolume(ctx context.Context, req *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	required, limit := req.GetCapacityRange().GetRequiredBytes(), req.GetCapacityRange().GetLimitBytes()
	switch {
	case req.GetVolumeId() == "":
		return nil, disk.Errorf(disk.Invalid, "volume_id is missing")
	case required == 0 && limit == 0:
		return nil, disk.Errorf(disk.Invalid, "capacity_range is missing")
	}
	want, err := disk.Want(required, limit, "")
	if err != nil {
		return nil, err
	}
	if err := disk.CheckGrowth(want.Least, req.GetVolumeCapability().GetMount().GetFsType()); err != nil {
		return nil, err
	}
	id := disk.ID(req.GetVolumeId())
	d, err := c.enlarge(ctx, id, want)
	if err != nil {
		return nil, c.confirmMissing(ctx, id, err)
	}
	return &csi.ControllerExpandVolumeResponse{
		CapacityBytes:         d.Size.Bytes(),
		NodeExpansionRequired: req.GetVolumeCapability().GetBlock() == nil,
	}, nil
}

// enlarge makes a disk as large as is wanted, and returns it as a read shows it then. NotFound may be what a read says.
func (c *Controller) enlarge(ctx context.Context, id disk.ID, want disk.Wanted) (disk.Disk, error) {
	d, err := c.ecs.GetCached(ctx, id)
	if err != nil {
		return d, err
	}
	if err := c.config.Owner.CheckDisk(d); err != nil {
		return d, err
	}
	if d, err = c.awaitMade(ctx, d); err != nil {
		return d, err
	}
	size, err := want.Grown(d)
	if err != nil || size <= d.Size {
		return d, err
	}
	if d.State == disk.Available {
		// ECS doesn't refuse to resize a disk offline that another replica has attached since, and its guest doesn't see the size.
		if d, err = c.ecs.Get(ctx, id); err != nil {
			return d, err
		}
	}
	return c.ecs.Resize(ctx, d, size)
}
