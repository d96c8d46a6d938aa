package volume

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/capability"
	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/params"
)

// ValidateVolumeCapabilities confirms what it has held against the disk as it
// is: the capabilities and, if given, the parameters. What doesn't hold is no
// error but a message (CSI spec, ValidateVolumeCapabilities).
func (c *Controller) ValidateVolumeCapabilities(ctx context.Context,
	req *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	switch {
	case req.GetVolumeId() == "":
		return nil, disk.Errorf(disk.Invalid, "volume_id is missing")
	case len(req.GetVolumeCapabilities()) == 0:
		return nil, disk.Errorf(disk.Invalid, "volume_capabilities are missing")
	}
	d, err := c.get(ctx, disk.ID(req.GetVolumeId()))
	if err != nil {
		return nil, err
	}
	if err := c.holds(req, d); err != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil //nolint:nilerr // CSI: what is not confirmed is told in the message
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext:      req.GetVolumeContext(),
		VolumeCapabilities: req.GetVolumeCapabilities(),
		Parameters:         req.GetParameters(),
		MutableParameters:  req.GetMutableParameters(),
	}}, nil
}

// holds says whether a disk is what the request says of it.
func (c *Controller) holds(req *csi.ValidateVolumeCapabilitiesRequest, d disk.Disk) error {
	capabilities := req.GetVolumeCapabilities()
	if err := capability.Check(capabilities); err != nil {
		return err
	}
	if err := capability.Shareable(capabilities, d.MultiAttach); err != nil {
		return err
	}
	if len(req.GetParameters())+len(req.GetMutableParameters()) == 0 {
		_, _, err := c.config.format(params.Class{}, capabilities)
		return err
	}
	class, err := params.Parse(req.GetParameters(), req.GetMutableParameters(), c.config.Unknown)
	if err != nil {
		return err
	}
	if _, _, err = c.config.format(class, capabilities); err != nil {
		return err
	}
	spec := class.Spec(d.Name, c.config.Owner.Cluster)
	spec.SnapshotID, spec.CloneOf = d.SnapshotID, disk.ID(d.Tags[disk.CloneTag]) // no request names the source here
	if err := spec.Matches(d); err != nil {
		return err
	}
	return disk.OneOf(class.Choices, d)
}
