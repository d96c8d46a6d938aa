// Package stock caches where the driver was out of stock, and until when.
package stock

import (
	"cmp"
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

// A refusal holds for FirstPause, and twice as long after each further one, up to
// longestPause.
const (
	FirstPause   = 5 * time.Second
	longestPause = time.Minute
	// forgottenAfter is how long after its end a refusal still doubles the next one.
	forgottenAfter = 5 * time.Minute
)

// Refusals caches what the driver has refused for lack of stock, so that claims with equal
// requests share a call: the scheduler selects the same nodes for them again and again.
// It is safe for concurrent use.
type Refusals struct {
	mu       sync.Mutex
	refusals map[string]map[key]refusal // by key.group
	belows   []int64                    // of the keys, each once
	swept    time.Time
	now      func() time.Time
	onChange func(class string, until time.Time)
}

// Want is what a claim requests.
type Want struct {
	Class     *storagev1.StorageClass
	Requisite []*csi.Topology // acceptable topologies; empty for any
	Specifics string          // what the driver is asked for besides, in a form to compare; empty for what every claim of the class asks for
	Bytes     int64           // at least
	Claim     types.UID
	Node      string // that was selected; empty for none
}

// key identifies what was refused: a class, the requested topologies with the disk types that the selected node takes, and
// what else the driver was asked for.
type key struct {
	class, topologies, specifics string
	below                        int64     // a request of this size or more may be served by what a smaller one can't have; 0: none
	claim                        types.UID // set if the claim itself may be the reason
}

// group keeps the keys of a class together, and those of single claims, which may be many, apart.
func (k key) group() string {
	if k.claim != "" {
		return ""
	}
	return k.class
}

// largest returns the largest size that the key's refusal may hold for.
func (k key) largest() int64 {
	if k.below == 0 {
		return math.MaxInt64
	}
	return k.below - 1
}

// isOfClass says whether the refusal is of what every claim of the class asks for.
func (k key) isOfClass() bool { return k.claim == "" && k.specifics == "" }

type refusal struct {
	zones    []string // that were requested; nil if only some of their nodes were, or more than the class asks for
	bytes    int64    // the smallest size that was refused of late; a smaller one may be available
	from     int64    // the smallest size that is refused until then: that of the last refusal, or of the claim that calls the driver since
	pause    time.Duration
	answered time.Time // when the driver last refused
	until    time.Time // when it is called again
	asking   types.UID // of the claim that calls it since; empty for none
}

// isOver says whether the driver may be called again for any size.
func (l refusal) isOver(now time.Time) bool { return !now.Before(l.until) }

// holdsFor says whether the driver is not to be called for the request: it is for the claim that calls it to see whether the refusal still holds.
func (l refusal) holdsFor(w Want, now time.Time) bool {
	return !l.isOver(now) && w.Bytes >= l.from && (l.asking == "" || l.asking != w.Claim)
}

// New returns an empty cache.
func New(now func() time.Time) *Refusals {
	return &Refusals{refusals: map[string]map[key]refusal{}, now: now, onChange: func(string, time.Time) {}}
}

// OnChange sets what is called for each new refusal of what every claim of a class asks for, with the time until which
// it holds, and with the zero time once it ends earlier. It must be called
// before the other methods.
func (r *Refusals) OnChange(f func(class string, until time.Time)) { r.onChange = f }

func keyOf(w Want) key {
	requisite := &csi.TopologyRequirement{Requisite: w.Requisite}
	topologies, err := proto.MarshalOptions{Deterministic: true}.Marshal(requisite)
	if err != nil {
		topologies = []byte(err.Error()) // can't happen: strings of Kubernetes objects are UTF-8
	}
	return key{class: classKey(w.Class), topologies: string(topologies), specifics: w.Specifics}
}

// claimKeyOf is the key of a refusal that holds for the claim alone, on its node.
func claimKeyOf(w Want) key {
	return key{class: classKey(w.Class), topologies: w.Node, claim: w.Claim}
}

// classKey distinguishes a class from a later one of the same name.
func classKey(class *storagev1.StorageClass) string { return class.Name + "/" + string(class.UID) }

// zonesOf returns the zones of the terms, or nil if a term has other keys than zone and
// region, such as the disk types that a node takes.
func zonesOf(terms []*csi.Topology) []string {
	var zones []string
	for _, term := range terms {
		for key := range term.GetSegments() {
			if !topology.IsZoneKey(key) && key != topology.RegionKey {
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
	now := r.now()
	type sizes struct{ from, to int64 }
	var refused []sizes
	for at, last := range r.refusals[classKey(class)] {
		if !last.isOver(now) && slices.Contains(last.zones, zone) {
			refused = append(refused, sizes{last.from, at.largest()})
		}
	}
	slices.SortFunc(refused, func(a, b sizes) int { return cmp.Compare(b.to, a.to) })
	most := int64(math.MaxInt64)
	for _, s := range refused {
		if s.from <= most && most <= s.to {
			most = s.from - 1
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
		if !last.isOver(now) {
			zones = append(zones, last.zones...)
		}
	}
	return zones
}

// Ask returns a *RefusedBefore while a refusal of an equal or smaller request holds. After
// that one claim may call the driver, while the others that want as much wait for its answer or for EndTrial.
func (r *Refusals) Ask(w Want) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.refuses(w, time.Time{}); err != nil {
		return err
	}
	now := r.now()
	for _, at := range r.keysOf(w) {
		if last, ok := r.about(at, w); ok && now.Sub(last.until) <= forgottenAfter {
			last.until, last.asking, last.from = now.Add(last.pause), w.Claim, w.Bytes
			r.refusals[at.group()][at] = last
		}
	}
	return nil
}

// EndTrial says that the claim, which Ask may have let pass alone, calls the driver no more: if it has got an answer about stock, Served or
// Refused has recorded it. Else the next claim may call at once.
func (r *Refusals) EndTrial(w Want) {
	ofClass := false
	r.mu.Lock()
	for _, at := range r.keysOf(w) {
		if last, ok := r.about(at, w); ok && last.asking != "" && last.asking == w.Claim {
			last.until, last.asking = r.now(), ""
			r.refusals[at.group()][at] = last
			ofClass = ofClass || at.isOfClass()
		}
	}
	r.mu.Unlock()
	if ofClass {
		r.onChange(w.Class.Name, time.Time{})
	}
}

// keysOf returns the keys whose refusals may hold for the request: none while the cache is
// empty. r.mu is held.
func (r *Refusals) keysOf(w Want) (keys []key) {
	if len(r.refusals) == 0 {
		return nil
	}
	at := keyOf(w)
	for _, at.below = range r.belows {
		if w.Bytes <= at.largest() {
			keys = append(keys, at)
		}
	}
	return append(keys, claimKeyOf(w))
}

// about returns the key's refusal if the request is as large as what was refused. r.mu is held.
func (r *Refusals) about(at key, w Want) (last refusal, ok bool) {
	last, ok = r.refusals[at.group()][at]
	return last, ok && w.Bytes >= last.bytes
}

// Refuses returns the error that Ask would return, without side effects.
func (r *Refusals) Refuses(w Want) error { return r.RefusedSince(w, time.Time{}) }

// RefusedSince returns a *RefusedBefore if the driver has refused an equal or smaller request since Ask let this one pass at
// the given time, and the refusal holds.
func (r *Refusals) RefusedSince(w Want, passed time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refuses(w, passed)
}

// refuses returns a *RefusedBefore if a refusal holds that is not older than since: the one that holds the longest. r.mu is held.
func (r *Refusals) refuses(w Want, since time.Time) error {
	var of key
	var longest refusal
	for _, at := range r.keysOf(w) {
		last, ok := r.about(at, w)
		if ok && last.holdsFor(w, r.now()) && !last.answered.Before(since) && last.until.After(longest.until) {
			of, longest = at, last
		}
	}
	if longest.until.IsZero() {
		return nil
	}
	return refusedBefore(of, longest, w)
}

// IsEmpty says whether no refusal is known, of whatever request.
func (r *Refusals) IsEmpty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.refusals) == 0
}

// IsScarce says whether the driver's last answer to an equal or smaller request was a refusal, be it over.
func (r *Refusals) IsScarce(w Want) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.keysOf(w), func(at key) bool {
		last, ok := r.about(at, w)
		return ok && r.now().Sub(last.until) <= forgottenAfter
	})
}

// RefusedBefore says that the driver is not called because a refusal holds. It names a
// time instead of a duration, so that events about it are equal.
type RefusedBefore struct {
	OfClaim bool // the reason may be the claim's own: the driver need not be out of stock

	class, node string
	until       time.Time
}

func refusedBefore(at key, last refusal, w Want) error {
	return &RefusedBefore{OfClaim: at.claim != "", class: w.Class.Name, node: w.Node, until: last.until}
}

// Error says until when.
func (r *RefusedBefore) Error() string {
	what := "was just out of stock for class " + r.class
	if r.OfClaim {
		what = "has just refused the claim for node " + r.node
	}
	return fmt.Sprintf("the driver %s; it is called again at %s UTC", what, r.until.UTC().Format(time.TimeOnly))
}

// Refused records that the driver, called at the given time, was out of stock. Answers to concurrent calls count as one. Requests of a size or
// more may be served by what a smaller one can't have; 0: there is no such size.
func (r *Refusals) Refused(w Want, size int64, asked time.Time) {
	at := keyOf(w)
	if size > w.Bytes {
		at.below = size
	}
	if until := r.keep(at, w, asked); w.Specifics == "" {
		r.onChange(w.Class.Name, until)
	}
}

// RefusedClaim records that the driver has refused the claim for a reason that may be its
// own, so that it is not rescheduled without a pause.
func (r *Refusals) RefusedClaim(w Want, asked time.Time) { r.keep(claimKeyOf(w), w, asked) }

// keep stores the refusal and returns until when it holds.
func (r *Refusals) keep(at key, w Want, asked time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	r.sweep(now)
	last, again := r.refusals[at.group()][at]
	switch {
	case !again || now.Sub(last.until) > forgottenAfter:
		last = refusal{bytes: w.Bytes, pause: FirstPause}
		if at.isOfClass() {
			last.zones = zonesOf(w.Requisite)
		}
	case !last.isOver(now) && w.Bytes > last.from: // it says nothing of the smaller size
		return last.until
	case !asked.Before(last.answered):
		last.pause = min(2*last.pause, longestPause)
	}
	last.bytes, last.from = min(last.bytes, w.Bytes), w.Bytes
	last.answered, last.until, last.asking = now, now.Add(last.pause), ""
	if r.refusals[at.group()] == nil {
		r.refusals[at.group()] = map[key]refusal{}
	}
	r.refusals[at.group()][at] = last
	if !slices.Contains(r.belows, at.below) {
		r.belows = append(r.belows, at.below)
	}
	return last.until
}

// Served records that the driver, called at the given time, had stock for the request. A refusal of a larger one holds on, and Most stays below
// it; the zones of an equal or smaller one all count as having stock until one refuses again, for any of them may have served. What it has
// refused since the call holds on, too: the request may have got the last.
func (r *Refusals) Served(w Want, called time.Time) {
	refused := false
	r.mu.Lock()
	for _, at := range r.keysOf(w) {
		last, ok := r.about(at, w)
		switch {
		case !ok || last.answered.After(called):
		case !last.isOver(r.now()) && w.Bytes < last.from:
			last.bytes = last.from
			r.refusals[at.group()][at] = last
		default:
			r.forget(at)
			refused = refused || at.isOfClass()
		}
	}
	r.mu.Unlock()
	if refused {
		r.onChange(w.Class.Name, time.Time{})
	}
}

// sweep deletes old refusals once in forgottenAfter, so that the cost of Refused does not grow with their number.
func (r *Refusals) sweep(now time.Time) {
	if now.Sub(r.swept) < forgottenAfter {
		return
	}
	r.swept, r.belows = now, nil
	for _, group := range r.refusals {
		for at, last := range group {
			switch {
			case now.Sub(last.until) > forgottenAfter:
				r.forget(at)
			case !slices.Contains(r.belows, at.below):
				r.belows = append(r.belows, at.below)
			}
		}
	}
}

// forget deletes a refusal. r.mu is held.
func (r *Refusals) forget(at key) {
	group := r.refusals[at.group()]
	if delete(group, at); len(group) == 0 {
		delete(r.refusals, at.group())
	}
}
