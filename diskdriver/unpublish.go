package diskdriver

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// ControllerUnpublishVolume detaches a disk from a node, or from all if none is
// named (CSI spec, ControllerUnpublishVolume). It is OK only when ECS shows that
// the node hasn't the disk, be the node running, stopped or gone; a disk that
// doesn't exist is on no node, if the node is in the region that was asked. A disk of another cluster is left alone, and an error.
func (c *controller) ControllerUnpublishVolume(ctx context.Context, req *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, disk.Errorf(disk.Invalid, "volume_id is missing")
	}
	id, node := disk.ID(req.GetVolumeId()), disk.InstanceID(req.GetNodeId())
	err := c.attacher.Unpublish(ctx, id, node, c.config.owner().CheckNotOthers)
	if err == nil || disk.KindOf(err) == disk.NotFound {
		err = c.checkRegion(ctx, id, node)
	}
	if err != nil {
		return nil, c.untagged(ctx, id, err)
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

// checkRegion has an error for a disk that this driver's region doesn't have, and a node that is in another one.
func (c *controller) checkRegion(ctx context.Context, id disk.ID, node disk.InstanceID) error {
	region := c.config.region(node)
	if region == "" || region == c.config.Region {
		return nil
	}
	if _, err := c.ecs.GetCached(ctx, id); disk.KindOf(err) != disk.NotFound {
		return err
	}
	return &disk.Error{Disk: id, Instance: node, Kind: disk.Blocked, Err: fmt.Errorf("the node is in region %q by its provider ID, and this driver (--region) works in %s, "+
		"which has no such disk; give the driver the node's region, or detach the disk there by hand and remove the VolumeAttachment's finalizer", region, c.config.Region)}
}

// untagged adds to a refusal by RAM how to tag a disk that has lost its tag: the driver detaches one with whatever tags, RAM doesn't.
func (c *controller) untagged(ctx context.Context, id disk.ID, refusal error) error {
	if disk.KindOf(refusal) != disk.Denied {
		return refusal
	}
	d, err := c.ecs.GetCached(ctx, id)
	if err != nil {
		return refusal
	}
	return c.config.owner().Refused(d, refusal)
}
