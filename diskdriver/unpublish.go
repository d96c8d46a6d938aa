package diskdriver

import (
	"context"
	"strings"

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
	id, node := disk.ID(req.GetVolumeId()), disk.InstanceID(req.GetNodeId())
	defer c.unsettled.begin(tie{id, node}, left)()
	err := c.unpublish(ctx, id, unpublishing{node})
	if err != nil && disk.KindOf(err) != disk.NotFound {
		return nil, err
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

// unpublish takes the steps of the plan until ECS shows that the disk is off.
func (c *controller) unpublish(ctx context.Context, id disk.ID, u unpublishing) error {
	if c.unsettled.attached(tie{id, u.node}) { // ECS's answer says if it isn't so any more
		d, err := c.detach(ctx, tie{id, u.node})
		if err != nil {
			return err
		}
		return c.tags.Untag(ctx, id, u.records(d))
	}
	d, err := c.disks.Get(ctx, id)
	if err == nil {
		c.unsettled.saw(tie{id, u.node}, d.On(u.node))
	}
	for err == nil {
		next, nodes := c.unpublishes(d, u)
		for _, node := range nodes {
			if _, err := c.detach(ctx, tie{id, node}); err != nil {
				return err
			}
		}
		switch {
		case next == done, next == detach && u.node != "":
			c.unsettled.settle(tie{id, u.node}, left)
			return c.tags.Untag(ctx, id, u.records(d))
		case next == detach: // from all: a read may not have shown all
			d, err = c.disks.Get(ctx, id)
		default:
			d, err = c.attachments.Await(ctx, id, func(d disk.Disk) (bool, error) {
				next, _ := c.unpublishes(d, u)
				return next != await, nil
			})
		}
	}
	return err
}

// unpublishes decides what an unpublish does next, going by what ECS shows and
// may not show yet.
func (c *controller) unpublishes(d disk.Disk, u unpublishing) (step, []disk.InstanceID) {
	next, nodes := u.next(c.unsettled.unseen(tie{d.ID, u.node}).without(d))
	if next != done {
		return next, nodes
	}
	if hidden := c.unsettled.hidden(d, u.node); len(hidden) > 0 {
		return detach, hidden
	}
	if c.unsettled.coming(d.ID, u.node) {
		return await, nil
	}
	return done, nil
}

// records are the tags of a disk that speak of the nodes that it is taken from.
func (u unpublishing) records(d disk.Disk) []string {
	var keys []string
	for key := range d.Tags {
		node, ok := strings.CutPrefix(key, disk.ReadOnlyTag(""))
		if ok && (u.node == "" || disk.InstanceID(node) == u.node) {
			keys = append(keys, key)
		}
	}
	return keys
}

// detach detaches a disk from one node, and remembers it if ECS may be at it
// still.
func (c *controller) detach(ctx context.Context, t tie) (disk.Disk, error) {
	answered := false
	defer func() {
		if !answered { // the call has panicked
			c.unsettled.doubt(t, leaving)
		}
	}()
	d, err := c.attachments.Detach(ctx, t.node, t.disk)
	answered = true
	if err != nil {
		c.unsettled.failed(t, leaving, err)
		return d, err
	}
	c.unsettled.settle(t, left)
	return d, nil
}
