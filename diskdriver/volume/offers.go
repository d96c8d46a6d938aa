package volume

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// offersLast is for how long an answer about the zones' stock is good: COs ask
// for every class and zone, one after the other, and take what they hear for
// true until they ask again a minute later.
const offersLast = 10 * time.Second

// offers keeps what the zones had to give when ECS was last asked, and what it
// has refused since.
type offers struct {
	ecs      ECS
	turn     chan struct{} // holds one element for whoever asks ECS
	zonal    offer
	regional offer

	mu      sync.Mutex
	refused map[disk.Attempt]time.Time // of any size
}

type offer struct {
	known disk.Offers
	at    time.Time // before ECS was asked
}

func newOffers(ecs ECS) *offers {
	return &offers{ecs: ecs, turn: make(chan struct{}, 1), refused: make(map[disk.Attempt]time.Time)}
}

// of returns the offers of the zones and, if one of the choices is regional, of
// the region.
func (o *offers) of(ctx context.Context, choices []disk.Choice) (disk.Offers, error) {
	all := disk.Offers{}
	for _, choice := range choices {
		latest, err := o.latest(ctx, choice.Category.Regional())
		if err != nil {
			return nil, err
		}
		for zone, offered := range latest.known {
			all[zone] = o.left(zone, offered, choices, latest.at)
		}
	}
	return all, nil
}

// latest returns what the zones, or the region, have to give. One caller asks,
// and the others wait for his answer.
func (o *offers) latest(ctx context.Context, regional bool) (offer, error) {
	select {
	case o.turn <- struct{}{}:
	case <-ctx.Done():
		return offer{}, disk.Errorf(disk.Unreachable, "ECS was not asked for its stock in time: %w", ctx.Err())
	}
	defer func() { <-o.turn }()
	kind := &o.zonal
	if regional {
		kind = &o.regional
	}
	if kind.known == nil || time.Since(kind.at) >= offersLast {
		began := time.Now()
		known, err := o.ecs.Offers(ctx, regional)
		if err != nil {
			return offer{}, err
		}
		*kind = offer{known: known, at: began}
	}
	return *kind, nil
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
			return choice.Category == c && o.refused[disk.Attempt{Zone: zone, Category: c, Level: choice.Level}].Before(at)
		})
	})
	return left
}

// refuse notes that ECS has just had no such disk to give.
func (o *offers) refuse(try disk.Attempt) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(o.refused, func(_ disk.Attempt, at time.Time) bool { return now.Sub(at) > 2*offersLast })
	try.Size = 0
	o.refused[try] = now
}
