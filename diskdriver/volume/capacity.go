package volume

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/topodisk/topodisk/diskdriver/capability"
	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/params"
)

// GetCapacity says how large a disk can be had now of a class's types in a zone,
// and 0 if there is none (CSI spec, GetCapacity). ECS has no number for all
// disks together, so one of the largest stands for it.
func (c *Controller) GetCapacity(ctx context.Context, req *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	class, candidates, err := c.storage(req)
	if err != nil {
		return nil, err
	}
	if len(candidates) == 0 {
		return &csi.GetCapacityResponse{}, nil
	}
	offers, err := c.offers.of(ctx, class.Choices)
	if err != nil {
		return nil, err
	}
	sizes, found := offers.Sizes(class.Choices, candidates, class.Disk.MultiAttach)
	if class.AtLeast20 {
		sizes.Least = max(sizes.Least, 20)
	}
	if !found || sizes.Least > sizes.Most {
		return &csi.GetCapacityResponse{}, nil
	}
	return &csi.GetCapacityResponse{
		AvailableCapacity: sizes.Most.Bytes(),
		MaximumVolumeSize: wrapperspb.Int64(sizes.Most.Bytes()),
		MinimumVolumeSize: wrapperspb.Int64(sizes.Least.Bytes()),
	}, nil
}

// storage understands which disks are asked for, and where. No candidate is left
// if the class keeps out of the topology.
func (c *Controller) storage(req *csi.GetCapacityRequest) (params.Class, []disk.ZoneCandidate, error) {
	class, err := params.Parse(req.GetParameters(), nil, c.config.Unknown)
	if err != nil {
		return class, nil, err
	}
	if len(req.GetVolumeCapabilities()) > 0 {
		if err := capability.Check(req.GetVolumeCapabilities()); err != nil {
			return class, nil, err
		}
		if err := capability.Shareable(req.GetVolumeCapabilities(), class.Disk.MultiAttach); err != nil {
			return class, nil, err
		}
	}
	candidates := []disk.ZoneCandidate{{}}
	if topology := req.GetAccessibleTopology(); topology != nil {
		candidate, err := c.config.readTerm(topology.GetSegments())
		if err != nil {
			return class, nil, disk.Errorf(disk.Invalid, "accessible_topology: %w", err)
		}
		candidates[0] = candidate
	}
	if len(class.Zones) > 0 {
		candidates = narrow(candidates, class.Zones)
	}
	return class, candidates, nil
}

// zoneOffers returns what the zones have to give, whatever the disk type.
func (c *Controller) zoneOffers(ctx context.Context) (disk.Offers, error) {
	latest, err := c.offers.latest(ctx, false)
	return latest.known, err
}
