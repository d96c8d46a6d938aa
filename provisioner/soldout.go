package provisioner

import (
	"fmt"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
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
}

// place is what a claim wants and where: a class and the topologies asked for,
// with the disk types that the selected node takes.
type place struct{ class, topologies string }

type refusal struct {
	bytes int64 // the smallest size that was refused; a smaller one may be had
	pause time.Duration
	heard time.Time // when the driver last said so
	until time.Time // when it is asked again
}

func newSoldOut(now func() time.Time) *soldOut {
	return &soldOut{refusals: map[place]refusal{}, now: now}
}

func placeOf(o *order) place {
	requisite := &csi.TopologyRequirement{Requisite: o.request.AccessibilityRequirements.GetRequisite()}
	topologies, err := proto.MarshalOptions{Deterministic: true}.Marshal(requisite)
	if err != nil {
		topologies = []byte(err.Error()) // no string of a Kubernetes object is at fault, for they are UTF-8
	}
	return place{class: o.class.Name + "/" + string(o.class.UID), topologies: string(topologies)}
}

// ask returns an error if the driver has just refused the same or less. Once
// that is long enough ago one order may ask, and the others go on waiting for
// what it hears.
func (s *soldOut) ask(o *order) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, now := placeOf(o), s.now()
	r, ok := s.refusals[at]
	if !ok || o.request.CapacityRange.GetRequiredBytes() < r.bytes || now.Sub(r.until) > soldOutForgotten {
		return nil
	}
	if left := r.until.Sub(now); left > 0 {
		return fmt.Errorf("there was no volume to be had for class %s a moment ago; the driver is asked again in %s", o.class.Name, left.Round(time.Second))
	}
	r.until = now.Add(r.pause)
	s.refusals[at] = r
	return nil
}

// heard notes that the driver, asked at the given time, has had no volume to
// give. Answers to calls that were made side by side count as one.
func (s *soldOut) heard(o *order, asked time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, bytes := s.now(), o.request.CapacityRange.GetRequiredBytes()
	s.sweep(now)
	at := placeOf(o)
	r, again := s.refusals[at]
	switch {
	case !again:
		r = refusal{bytes: bytes, pause: soldOutAtFirst}
	case !asked.Before(r.heard):
		r.pause = min(2*r.pause, soldOutAtMost)
	}
	r.bytes, r.heard, r.until = min(r.bytes, bytes), now, now.Add(r.pause)
	s.refusals[at] = r
}

// served notes that the driver has had a volume to give.
func (s *soldOut) served(o *order) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.refusals, placeOf(o))
}

func (s *soldOut) sweep(now time.Time) {
	for at, r := range s.refusals {
		if now.Sub(r.until) > soldOutForgotten {
			delete(s.refusals, at)
		}
	}
}
