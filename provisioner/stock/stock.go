// Package stock remembers where the driver had no volume to give, and until when
// that is believed.
package stock

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

// How long a refusal is believed: the first time, and at most. In between it
// doubles with each further refusal.
const (
	FirstPause   = 5 * time.Second
	longestPause = time.Minute
	// forgottenAfter is how long after its end a refusal still counts as the one
	// before the next.
	forgottenAfter = 5 * time.Minute
)

// Refusals is the memory of what the driver has refused for want of stock, so that
// many claims that want the same there cost one call now and then, and not one call
// each: the scheduler has no such memory and sends them again and again. It is safe
// for concurrent use.
type Refusals struct {
	mu       sync.Mutex
	refusals map[string]map[place]refusal // by place.group
	swept    time.Time
	now      func() time.Time
	onChange func(class string, until time.Time)
}

// Want is what a claim wants, and where.
type Want struct {
	Class     *storagev1.StorageClass
	Requisite []*csi.Topology // where it may be; empty for anywhere
	Bytes     int64           // at least
	Claim     types.UID
	Node      string // that was selected; empty for none
}

// place is what a claim wants and where: a class and the topologies asked for,
// with the disk types that the selected node takes.
type place struct {
	class, topologies string
	claim             types.UID // only if the refusal may be the claim's own fault
}

// group keeps the places of a class together, and apart from them those of single claims, which may be many.
func (p place) group() string {
	if p.claim != "" {
		return ""
	}
	return p.class
}

type refusal struct {
	zones []string // that were asked for; nil if only some of their nodes were
	bytes int64    // the smallest size that was refused; a smaller one may be had
	pause time.Duration
	heard time.Time // when the driver last said so
	until time.Time // when it is asked again
}

// New returns a memory of no refusal.
func New(now func() time.Time) *Refusals {
	return &Refusals{refusals: map[string]map[place]refusal{}, now: now, onChange: func(string, time.Time) {}}
}

// OnChange has f told of each new refusal to a class, with the time until which it
// is believed, and with the zero time of each place that is served again. It is
// called before anything else.
func (r *Refusals) OnChange(f func(class string, until time.Time)) { r.onChange = f }

func placeOf(w Want) place {
	requisite := &csi.TopologyRequirement{Requisite: w.Requisite}
	topologies, err := proto.MarshalOptions{Deterministic: true}.Marshal(requisite)
	if err != nil {
		topologies = []byte(err.Error()) // no string of a Kubernetes object is at fault, for they are UTF-8
	}
	return place{class: classKey(w.Class), topologies: string(topologies)}
}

// ownPlaceOf is the place of a refusal that speaks for the claim alone, on its node.
func ownPlaceOf(w Want) place {
	return place{class: classKey(w.Class), topologies: w.Node, claim: w.Claim}
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
		zones = append(zones, topology.ZoneOfTerm(term))
	}
	return zones
}

// Most returns the largest size in bytes that was not just refused to a class in a zone.
func (r *Refusals) Most(class *storagev1.StorageClass, zone string) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	most, now := int64(math.MaxInt64), r.now()
	for _, last := range r.refusals[classKey(class)] {
		if now.Before(last.until) && slices.Contains(last.zones, zone) {
			most = min(most, last.bytes-1)
		}
	}
	return most
}

// Zones returns the zones in which a class was just refused, in any order and
// perhaps more than once.
func (r *Refusals) Zones(class *storagev1.StorageClass) (zones []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	for _, last := range r.refusals[classKey(class)] {
		if now.Before(last.until) {
			zones = append(zones, last.zones...)
		}
	}
	return zones
}

// Ask returns a *RefusedBefore if the driver has just refused the same or less. Once
// that is long enough ago one claim may ask, and the others go on waiting for what
// it hears.
func (r *Refusals) Ask(w Want) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, at := range r.refusedPlaces(w) {
		if err := r.askAt(at, w); err != nil {
			return err
		}
	}
	return nil
}

// refusedPlaces are the places of which a refusal may speak for what is wanted:
// none as long as nothing is sold out. r.mu is held.
func (r *Refusals) refusedPlaces(w Want) []place {
	if len(r.refusals) == 0 {
		return nil
	}
	return []place{placeOf(w), ownPlaceOf(w)}
}

// Refuses says whether Ask would return an error, and lets nobody ask.
func (r *Refusals) Refuses(w Want) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, at := range r.refusedPlaces(w) {
		if last, ok := r.refusals[at.group()][at]; ok && w.Bytes >= last.bytes && last.until.After(r.now()) {
			return true
		}
	}
	return false
}

func (r *Refusals) askAt(at place, w Want) error {
	now := r.now()
	last, ok := r.refusals[at.group()][at]
	if !ok || w.Bytes < last.bytes || now.Sub(last.until) > forgottenAfter {
		return nil
	}
	if last.until.After(now) {
		return &RefusedBefore{class: w.Class.Name, until: last.until}
	}
	last.until = now.Add(last.pause)
	r.refusals[at.group()][at] = last
	return nil
}

// RefusedBefore says that the driver is not asked, for it would say the same.
// It names a time and not a duration, so that the same is told in the same words.
type RefusedBefore struct {
	class string
	until time.Time
}

// Error says until when.
func (r *RefusedBefore) Error() string {
	return fmt.Sprintf("there was no volume to be had for class %s a moment ago; the driver is asked again at %s UTC", r.class, r.until.UTC().Format(time.TimeOnly))
}

// Refused notes that the driver, asked at the given time, has had no volume to
// give. Answers to calls that were made side by side count as one.
func (r *Refusals) Refused(w Want, asked time.Time) {
	r.onChange(w.Class.Name, r.keep(placeOf(w), w, asked))
}

// RefusedClaim notes that the driver has refused the claim for a reason that may
// be its own, so that it is not sent round in a hurry.
func (r *Refusals) RefusedClaim(w Want, asked time.Time) { r.keep(ownPlaceOf(w), w, asked) }

// keep files the refusal and returns until when it is believed.
func (r *Refusals) keep(at place, w Want, asked time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, bytes := r.now(), w.Bytes
	r.sweep(now)
	last, again := r.refusals[at.group()][at]
	switch {
	case !again || now.Sub(last.until) > forgottenAfter:
		last = refusal{bytes: bytes, pause: FirstPause}
		if at.claim == "" {
			last.zones = zonesOf(w.Requisite)
		}
	case !asked.Before(last.heard):
		last.pause = min(2*last.pause, longestPause)
	}
	last.bytes, last.heard, last.until = min(last.bytes, bytes), now, now.Add(last.pause)
	if r.refusals[at.group()] == nil {
		r.refusals[at.group()] = map[place]refusal{}
	}
	r.refusals[at.group()][at] = last
	return last.until
}

// Served notes that the driver has had a volume to give.
func (r *Refusals) Served(w Want) {
	refused := false
	r.mu.Lock()
	for _, at := range r.refusedPlaces(w) {
		if _, ok := r.refusals[at.group()][at]; ok {
			r.forget(at)
			refused = refused || at.claim == ""
		}
	}
	r.mu.Unlock()
	if refused {
		r.onChange(w.Class.Name, time.Time{})
	}
}

// sweep forgets what no longer counts, now and then, so that a refusal costs the same among few and among many.
func (r *Refusals) sweep(now time.Time) {
	if now.Sub(r.swept) < forgottenAfter {
		return
	}
	r.swept = now
	for _, group := range r.refusals {
		for at, last := range group {
			if now.Sub(last.until) > forgottenAfter {
				r.forget(at)
			}
		}
	}
}

// forget deletes a refusal. r.mu is held.
func (r *Refusals) forget(at place) {
	group := r.refusals[at.group()]
	if delete(group, at); len(group) == 0 {
		delete(r.refusals, at.group())
	}
}
