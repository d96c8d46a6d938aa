package diskdriver

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/params"
)

// offersLast is for how long an answer about the zones' stock is good: COs ask
// for every class and zone, one after the other.
const offersLast = 30 * time.Second

// GetCapacity says how large a disk can be had now of a class's types in a zone,
// and 0 if there is none (CSI spec, GetCapacity). ECS has no number for all
// disks together, so one of the largest stands for it.
func (c *controller) GetCapacity(ctx context.Context, req *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	class, places, err := c.storage(req)
	if err != nil {
		return nil, err
	}
	if len(places) == 0 {
		return &csi.GetCapacityResponse{}, nil
	}
	offers, err := c.offers.of(ctx, c.stock, class.Choices)
	if err != nil {
		return nil, err
	}
	sizes, found := offers.Sizes(class.Choices, disksPlaces(places), class.MultiAttach)
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

// storage understands which disks are asked for, and where. No place is left
// if the class keeps out of the topology.
func (c *controller) storage(req *csi.GetCapacityRequest) (params.Class, []place, error) {
	class, err := params.Parse(req.GetParameters(), nil, c.config.Unknown)
	if err != nil {
		return class, nil, err
	}
	if len(req.GetVolumeCapabilities()) > 0 {
		if err := checkCapabilities(req.GetVolumeCapabilities()); err != nil {
			return class, nil, err
		}
		if err := shareable(req.GetVolumeCapabilities(), class.MultiAttach); err != nil {
			return class, nil, err
		}
	}
	places := []place{{}}
	if topology := req.GetAccessibleTopology(); topology != nil {
		place, err := c.area().readTerm(topology.GetSegments())
		if err != nil {
			return class, nil, disk.Errorf(disk.Invalid, "accessible_topology: %w", err)
		}
		places[0] = place
	}
	if len(class.Zones) > 0 {
		places = narrow(places, class.Zones)
	}
	return class, places, nil
}

// offers keeps what the zones had to give when ECS was last asked, and what it
// has refused since.
type offers struct {
	turn     chan struct{} // holds one element for whoever asks ECS
	zonal    offer
	regional offer

	mu      sync.Mutex
	refused map[shelf]time.Time
}

type offer struct {
	known disk.Offers
	at    time.Time // before ECS was asked
}

// shelf is where disks of one kind are, or none are left.
type shelf struct {
	zone   disk.Zone
	choice disk.Choice
}

func newOffers() *offers {
	return &offers{turn: make(chan struct{}, 1), refused: make(map[shelf]time.Time)}
}

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
			began := time.Now()
			known, err := stock.Offers(ctx, choice.Category.Regional())
			if err != nil {
				return nil, err
			}
			kind.known, kind.at = known, began
		}
		for zone, offered := range kind.known {
			all[zone] = o.left(zone, offered, choices, kind.at)
		}
	}
	return all, nil
}

// left returns what a zone offered at a time, without what it has refused to
// every choice of the category since: whoever hears of a refusal asks at once
// how much there is, and the scheduler goes by the answer.
func (o *offers) left(zone disk.Zone, offered map[disk.Category]disk.Range, choices []disk.Choice, at time.Time) map[disk.Category]disk.Range {
	o.mu.Lock()
	defer o.mu.Unlock()
	left := maps.Clone(offered)
	maps.DeleteFunc(left, func(c disk.Category, _ disk.Range) bool {
		return !slices.ContainsFunc(choices, func(choice disk.Choice) bool {
			return choice.Category == c && o.refused[shelf{zone, choice}].Before(at)
		})
	})
	return left
}

// refuse notes that ECS has just had no such disk to give.
func (o *offers) refuse(try disk.Attempt) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(o.refused, func(_ shelf, at time.Time) bool { return now.Sub(at) > 2*offersLast })
	o.refused[shelf{try.Zone, disk.Choice{Category: try.Category, Level: try.Level}}] = now
}
