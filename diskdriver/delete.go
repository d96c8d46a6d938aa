package diskdriver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// DeleteVolume deletes a disk. A volume that doesn't exist is deleted (CSI
// spec, DeleteVolume). A disk that is attached is left alone: FailedPrecondition.
func (c *controller) DeleteVolume(ctx context.Context, req *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, disk.Errorf(disk.Invalid, "volume_id is missing")
	}
	if err := c.disks.Delete(ctx, disk.ID(req.GetVolumeId())); err != nil {
		return nil, err
	}
	return &csi.DeleteVolumeResponse{}, nil
}
