package diskdriver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// ControllerUnpublishVolume detaches a disk from a node, or from all if none is
// named (CSI spec, ControllerUnpublishVolume). It is OK only when ECS shows that
// the node hasn't the disk, be the node running, stopped or gone; a disk that
// doesn't exist is on no node.
func (c *controller) ControllerUnpublishVolume(ctx context.Context, req *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, disk.Errorf(disk.Invalid, "volume_id is missing")
	}
	err := c.attacher.Unpublish(ctx, disk.ID(req.GetVolumeId()), disk.InstanceID(req.GetNodeId()))
	if err != nil && disk.KindOf(err) != disk.NotFound {
		return nil, err
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}
