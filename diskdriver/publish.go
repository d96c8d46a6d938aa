package diskdriver

import (
	"context"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/attachment"
	"github.com/topodisk/topodisk/diskdriver/capability"
	"github.com/topodisk/topodisk/diskdriver/disk"
)

// ControllerPublishVolume attaches a disk to a node (CSI spec,
// ControllerPublishVolume). It is OK only when ECS shows the attachment. A disk
// that another node has is left there: FailedPrecondition, which names it. That a node must not write
// is told to it in the publish context, and kept there, as are the volume that it is of, and whether this is its first attachment.
func (c *controller) ControllerPublishVolume(ctx context.Context, req *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	if err := checkPublish(req); err != nil {
		return nil, err
	}
	node := disk.InstanceID(req.GetNodeId())
	d, was, err := c.attacher.Publish(ctx, attachment.Publication{
		Disk:     disk.ID(req.GetVolumeId()),
		Instance: node,
		Known:    c.config.known(node),
		Shared:   capability.IsShared(req.GetVolumeCapability().GetAccessMode().GetMode()),
		ReadOnly: req.GetReadonly(),
		Force:    c.config.ForceRegional,
		Check: func(d disk.Disk) error {
			if err := c.config.owner().CheckDisk(d); err != nil {
				return err
			}
			return capability.Shareable([]*csi.VolumeCapability{req.GetVolumeCapability()}, d.MultiAttach)
		},
	})
	if err != nil {
		return nil, err
	}
	about := map[string]string{
		disk.VolumeKey: string(d.ID), disk.SerialKey: d.Serial, disk.SizeKey: strconv.FormatInt(d.Size.Bytes(), 10), disk.HistoryKey: string(was),
	}
	if since := d.AttachedSince(node); since != "" {
		about[disk.AttachedKey] = since
	}
	if req.GetReadonly() {
		about[disk.ReadOnlyKey] = "true"
	}
	return &csi.ControllerPublishVolumeResponse{PublishContext: about}, nil
}

// checkPublish refuses a request that names no volume, node or use.
func checkPublish(req *csi.ControllerPublishVolumeRequest) error {
	switch {
	case req.GetVolumeId() == "":
		return disk.Errorf(disk.Invalid, "volume_id is missing")
	case req.GetNodeId() == "":
		return disk.Errorf(disk.Invalid, "node_id is missing")
	case req.GetVolumeCapability() == nil:
		return disk.Errorf(disk.Invalid, "volume_capability is missing")
	}
	return capability.Check([]*csi.VolumeCapability{req.GetVolumeCapability()})
}
