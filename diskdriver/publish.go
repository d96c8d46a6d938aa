package diskdriver

import (
	"context"
	"fmt"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// ControllerPublishVolume attaches a disk to a node (CSI spec,
// ControllerPublishVolume). It is OK only when ECS shows the attachment. A disk
// that another node has is left there: FailedPrecondition, which names it.
//
// ECS attaches every disk for reading and writing. That a node must not write
// is recorded as a tag of the disk before it is attached, told to the node in
// the publish context, and kept there.
func (c *controller) ControllerPublishVolume(ctx context.Context, req *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	if err := checkPublish(req); err != nil {
		return nil, err
	}
	id, node := disk.ID(req.GetVolumeId()), disk.InstanceID(req.GetNodeId())
	defer c.unsettled.begin(tie{id, node}, come)()
	d, err := c.disks.Latest(ctx, id)
	if err == nil && len(d.Attachments) > 0 { // only ECS may say that it is published already
		d, err = c.disks.Get(ctx, id)
	}
	if err != nil {
		return nil, err
	}
	c.unsettled.saw(tie{id, node}, d.On(node))
	if err := publishable(d, req.GetVolumeCapability()); err != nil {
		return nil, err
	}
	d, err = c.publish(ctx, d, publishing{
		node:     node,
		instance: c.config.known(node),
		shared:   isShared(req.GetVolumeCapability().GetAccessMode().GetMode()),
		readOnly: req.GetReadonly(),
		force:    c.config.ForceRegional,
	})
	if err != nil {
		return nil, err
	}
	about := map[string]string{disk.SerialKey: d.Serial, disk.SizeKey: strconv.FormatInt(d.Size.Bytes(), 10)}
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
	return checkCapabilities([]*csi.VolumeCapability{req.GetVolumeCapability()})
}

// publishable refuses a disk that no node could use as it is to be used.
func publishable(d disk.Disk, capability *csi.VolumeCapability) error {
	if d.Serial == "" {
		return &disk.Error{Disk: d.ID, Kind: disk.Blocked, Err: fmt.Errorf("the disk has no serial number, as disks made before June 2020, so a node can't tell which device it is; " +
			"make a new disk from a snapshot of it")}
	}
	return shareable([]*csi.VolumeCapability{capability}, d.MultiAttach)
}

// publish takes the steps of the plan until ECS shows the attachment, and
// returns the disk as it is shown then.
func (c *controller) publish(ctx context.Context, d disk.Disk, p publishing) (disk.Disk, error) {
	t := tie{d.ID, p.node}
	if c.unsettled.leaving(t) {
		// A detach has begun, and reads may not show it. It can't be taken back.
		if _, err := c.detach(ctx, t); err != nil {
			return d, err
		}
		var err error
		if d, err = c.disks.Get(ctx, d.ID); err != nil {
			return d, err
		}
	}
	next, err := p.next(d, c.unsettled.unseen(t))
	if err == nil && next == await {
		d, err = c.attachments.Await(ctx, d.ID, func(d disk.Disk) (bool, error) {
			next, err = p.next(d, c.unsettled.unseen(t))
			return next != await, err
		})
	}
	switch {
	case err != nil:
		return d, err
	case next == done:
		c.unsettled.settle(t, come)
		return d, p.compatible(d)
	}
	if err := c.record(ctx, d, p); err != nil {
		return d, err
	}
	return c.attach(ctx, t, p, next == seize)
}

// compatible says whether a disk was published to the node as it is to be now.
func (p publishing) compatible(d disk.Disk) error {
	_, readOnly := d.Tags[disk.ReadOnlyTag(p.node)]
	if readOnly == p.readOnly {
		return nil
	}
	return &disk.Error{Disk: d.ID, Instance: p.node, Kind: disk.Mismatch,
		Err: fmt.Errorf("the disk is published to this node with readonly %v; asked for is %v", readOnly, p.readOnly)}
}

// record keeps on the disk whether the node may write. Writing is the rule and
// costs no call, unless a publish for reading was given up.
func (c *controller) record(ctx context.Context, d disk.Disk, p publishing) error {
	tag := disk.ReadOnlyTag(p.node)
	_, readOnly := d.Tags[tag]
	switch {
	case p.readOnly && !readOnly && d.Tags.Room() == 0:
		return &disk.Error{Disk: d.ID, Instance: p.node, Kind: disk.Blocked, Err: fmt.Errorf("a disk has at most %d tags, this one has them all (%d of them for nodes that read it), and that a node may not write is kept as one more; "+
			"remove a tag that isn't the driver's, or publish it for writing", disk.MostTags, len(unpublishing{}.records(d)))}
	case p.readOnly: // a read that lags behind may show the tag of the publish before, which is gone
		return c.tags.Tag(ctx, d.ID, disk.Tags{tag: "true"})
	case readOnly && !p.readOnly:
		return c.tags.Untag(ctx, d.ID, []string{tag})
	}
	return nil
}

// attach attaches a disk, and for reading waits until the record shows, by
// which later calls go.
func (c *controller) attach(ctx context.Context, t tie, p publishing, force bool) (disk.Disk, error) {
	answered := false
	defer func() {
		if !answered { // the call has panicked
			c.unsettled.doubt(t, coming)
		}
	}()
	d, err := c.attachments.Attach(ctx, t.node, t.disk, force)
	answered = true
	if err != nil {
		c.unsettled.failed(t, coming, err)
		return d, err
	}
	c.unsettled.settle(t, come)
	if p.compatible(d) == nil {
		return d, nil
	}
	return c.attachments.Await(ctx, d.ID, func(d disk.Disk) (bool, error) { return d.On(t.node) && p.compatible(d) == nil, nil })
}
