package provisioner

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/topology"
)

// How long a refusal for want of stock is believed: the first time, and at
// most. In between it doubles with each further refusal.
const (
	soldOutAtFirst = 5 * time.Second
	soldOutAtMost  = time.Minute
	// soldOutForgotten is how long after its end a refusal still counts as the
	// one before the next.
	soldOutForgotten = 5 * time.Minute
)

// soldOut remembers where the driver had no volume to give, so that many
// claims that want the same there cost one call now and then, and not one call
// each: the scheduler has no such memory and sends them again and again.
type soldOut struct {
	mu       sync.Mutex
	refusals map[place]refusal
	now      func() time.Time

	// onChange hears of each new refusal to a class, and of each place that is served again.
	onChange func(class string, until time.Time)
}

// place is what a claim wants and where: a class and the topologies asked for,
// with the disk types that the selected node takes.
type place struct {
	class, topologies string
	claim             types.UID // only if the refusal may be the claim's own fault
}

type refusal struct {
	zones []string // that were asked for; nil if only some of their nodes were
	bytes int64    // the smallest size that was refused; a smaller one may be had
	pause time.Duration
	heard time.Time // when the driver last said so
	until time.Time // when it is asked again
}

func newSoldOut(now func() time.Time) *soldOut {
	return &soldOut{refusals: map[place]refusal{}, now: now, onChange: func(string, time.Time) {}}
}

func placeOf(o *order) place {
	requisite := &csi.TopologyRequirement{Requisite: o.requisite()}
	topologies, err := proto.MarshalOptions{Deterministic: true}.Marshal(requisite)
	if err != nil {
		topologies = []byte(err.Error()) // no string of a Kubernetes object is at fault, for they are UTF-8
	}
	return place{class: classKey(o.class), topologies: string(topologies)}
}

// ownPlaceOf is the place of a refusal that speaks for the order's claim alone,
// on its node.
func ownPlaceOf(o *order) place {
	return place{class: classKey(o.class), topologies: o.node, claim: o.claim.UID}
}

// classKey tells a class from a later one of the same name.
func classKey(class *storagev1.StorageClass) string { return class.Name + "/" + string(class.UID) }

// zonesOf returns the zones of terms that say nothing but their zone, and nil
// if one says more, such as what a certain node takes.
func zonesOf(terms []*csi.Topology) []string {
	var zones []string
	for _, term := range terms {
		for key := range term.GetSegments() {
			if key != topology.WellKnownZoneKey && key != topology.ZoneKey && key != topology.RegionKey {
				return nil
			}
		}
		zones = append(zones, zoneOf(term))
	}
	return zones
}

// most returns the largest size in bytes that was not just refused to a class in a zone.
func (s *soldOut) most(class *storagev1.StorageClass, zone string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	most, now := int64(math.MaxInt64), s.now()
	for at, r := range s.refusals {
		if at.class == classKey(class) && now.Before(r.until) && slices.Contains(r.zones, zone) {
			most = min(most, r.bytes-1)
		}
	}
	return most
}

// zones returns the zones in which a class was just refused, in any order and
// perhaps more than once.
func (s *soldOut) zones(class *storagev1.StorageClass) (zones []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for at, r := range s.refusals {
		if at.class == classKey(class) && now.Before(r.until) {
			zones = append(zones, r.zones...)
		}
	}
	return zones
}

// ask returns an error if the driver has just refused the same or less. Once
// that is long enough ago one order may ask, and the others go on waiting for
// what it hears.
func (s *soldOut) ask(o *order) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.refusedPlaces(o) {
		if err := s.askAt(at, o); err != nil {
			return err
		}
	}
	return nil
}

// refusedPlaces are the places of which a refusal may speak for the order: none
// as long as nothing is sold out. s.mu is held.
func (s *soldOut) refusedPlaces(o *order) []place {
	if len(s.refusals) == 0 {
		return nil
	}
	return []place{placeOf(o), ownPlaceOf(o)}
}

// refuses says whether ask would return an error, and asks for nothing.
func (s *soldOut) refuses(o *order) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.refusedPlaces(o) {
		if r, ok := s.refusals[at]; ok && o.request.CapacityRange.GetRequiredBytes() >= r.bytes && r.until.After(s.now()) {
			return true
		}
	}
	return false
}

func (s *soldOut) askAt(at place, o *order) error {
	now := s.now()
	r, ok := s.refusals[at]
	if !ok || o.request.CapacityRange.GetRequiredBytes() < r.bytes || now.Sub(r.until) > soldOutForgotten {
		return nil
	}
	if r.until.After(now) {
		return &refusedBefore{class: o.class.Name, until: r.until}
	}
	r.until = now.Add(r.pause)
	s.refusals[at] = r
	return nil
}

// refusedBefore says that the driver is not asked, for it would say the same.
// It names a time and not a duration, so that the same is told in the same words.
type refusedBefore struct {
	class string
	until time.Time
}

func (r *refusedBefore) Error() string {
	return fmt.Sprintf("there was no volume to be had for class %s a moment ago; the driver is asked again at %s UTC", r.class, r.until.UTC().Format(time.TimeOnly))
}

// heard notes that the driver, asked at the given time, has had no volume to
// give. Answers to calls that were made side by side count as one.
func (s *soldOut) heard(o *order, asked time.Time) {
	s.onChange(o.class.Name, s.keep(placeOf(o), o, asked))
}

// heardOfOne notes that the driver has refused the claim for a reason that may
// be its own, so that it is not sent round in a hurry.
func (s *soldOut) heardOfOne(o *order, asked time.Time) { s.keep(ownPlaceOf(o), o, asked) }

// keep files the refusal and returns until when it is believed.
func (s *soldOut) keep(at place, o *order, asked time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, bytes := s.now(), o.request.CapacityRange.GetRequiredBytes()
	s.sweep(now)
	r, again := s.refusals[at]
	switch {
	case !again:
		r = refusal{bytes: bytes, pause: soldOutAtFirst}
		if at.claim == "" {
			r.zones = zonesOf(o.requisite())
		}
	case !asked.Before(r.heard):
		r.pause = min(2*r.pause, soldOutAtMost)
	}
	r.bytes, r.heard, r.until = min(r.bytes, bytes), now, now.Add(r.pause)
	s.refusals[at] = r
	return r.until
}

// served notes that the driver has had a volume to give.
func (s *soldOut) served(o *order) {
	refused := false
	s.mu.Lock()
	for _, at := range s.refusedPlaces(o) {
		if _, ok := s.refusals[at]; ok {
			delete(s.refusals, at)
			refused = refused || at.claim == ""
		}
	}
	s.mu.Unlock()
	if refused {
		s.onChange(o.class.Name, time.Time{})
	}
}

func (s *soldOut) sweep(now time.Time) {
	for at, r := range s.refusals {
		if now.Sub(r.until) > soldOutForgotten {
			delete(s.refusals, at)
		}
	}
}
