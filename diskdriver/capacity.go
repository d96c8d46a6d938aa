package diskdriver

import (
	"context"
	"maps"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// offersLast is for how long an answer about the zones' stock is good: COs ask
// for every class and zone, one after the other.
const offersLast = 30 * time.Second

// GetCapacity says how large a disk can be had now of a class's types in a zone,
// and 0 if there is none (CSI spec, GetCapacity). ECS has no number for all
// disks together, so one of the largest stands for it.
func (c *controller) GetCapacity(ctx context.Context, req *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	params, places, err := c.storage(req)
	if err != nil {
		return nil, err
	}
	if len(places) == 0 {
		return &csi.GetCapacityResponse{}, nil
	}
	offers, err := c.offers.of(ctx, c.stock, params.Choices)
	if err != nil {
		return nil, err
	}
	sizes, found := offers.Sizes(params.Choices, disksPlaces(places), params.MultiAttach)
	if params.AtLeast20 {
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

// storage understands which disks are asked for, and where. No place is left
// if the class keeps out of the topology.
func (c *controller) storage(req *csi.GetCapacityRequest) (disk.Parameters, []place, error) {
	params, err := disk.Parse(req.GetParameters(), nil, c.config.Unknown)
	if err != nil {
		return params, nil, err
	}
	if len(req.GetVolumeCapabilities()) > 0 {
		if err := checkCapabilities(req.GetVolumeCapabilities()); err != nil {
			return params, nil, err
		}
		if err := shareable(req.GetVolumeCapabilities(), params.MultiAttach); err != nil {
			return params, nil, err
		}
	}
	places := []place{{}}
	if topology := req.GetAccessibleTopology(); topology != nil {
		if places, err = c.area().read("accessible_topology", []*csi.Topology{topology}); err != nil {
			return params, nil, err
		}
	}
	if len(params.Zones) > 0 {
		places = narrow(places, params.Zones)
	}
	return params, places, nil
}

// offers keeps what the zones had to give when ECS was last asked.
type offers struct {
	turn     chan struct{} // holds one element for whoever asks ECS
	zonal    offer
	regional offer
}

type offer struct {
	known disk.Offers
	at    time.Time
}

func newOffers() *offers { return &offers{turn: make(chan struct{}, 1)} }

// of returns the offers of the zones and, if one of the choices is regional, of
// the region. One caller asks, and the others wait for his answer.
func (o *offers) of(ctx context.Context, stock Stock, choices []disk.Choice) (disk.Offers, error) {
	select {
	case o.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, disk.Errorf(disk.Unreachable, "ECS was not asked for its stock in time: %w", ctx.Err())
	}
	defer func() { <-o.turn }()
	all := disk.Offers{}
	for _, choice := range choices {
		kind := &o.zonal
		if choice.Category.Regional() {
			kind = &o.regional
		}
		if kind.known == nil || time.Since(kind.at) >= offersLast {
			known, err := stock.Offers(ctx, choice.Category.Regional())
			if err != nil {
				return nil, err
			}
			kind.known, kind.at = known, time.Now()
		}
		maps.Copy(all, kind.known)
	}
	return all, nil
}
