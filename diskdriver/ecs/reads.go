package ecs

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/internal/deadline"
	"github.com/topodisk/topodisk/diskdriver/ecs/transport"
)

// largestBatch is how many IDs one DescribeDisks takes, as do DescribeSnapshots
// and DescribeTasks.
const largestBatch = 100

const (
	// gatherTime is how long a look waits for company.
	gatherTime = 2 * time.Millisecond
	// judgeEvery is how often it is judged whether a look is worth its call: so much for every judgeMany questions, for each
	// has to be judged.
	judgeEvery = 10 * time.Millisecond
	judgeMany  = 200
	// companyTime is for how long a question waits for the company of others that is certain to be answered.
	companyTime = 100 * time.Millisecond
)

// reads answers questions after single disks, or other things of one sort, with
// shared calls. It makes none while nobody asks.
type reads[K ~string, V any] struct {
	action    string
	describe  func(context.Context, []K) (map[K]V, error)
	usual     *regexp.Regexp // IDs of this form can share a call
	throttled func() bool
	ids       prometheus.Observer // of each call

	mu     sync.Mutex
	later  asks[K, V]   // not due yet
	ready  []*ask[K, V] // due, and in no look yet
	wanted map[K]int    // how many of ready ask for an ID
	since  time.Time    // when the first of ready was due
	flying int          // looks that have left and have no answer
	asked  int          // questions that have no answer
	judged time.Time    // when it was last judged whether a look is worthwhile
	alarm  *time.Timer
}

func newReads[K ~string, V any](
	s *transport.Session, action string, usual *regexp.Regexp, describe func(context.Context, []K) (map[K]V, error), ids prometheus.Observer,
) *reads[K, V] {
	return &reads[K, V]{action: action, usual: usual, describe: describe, throttled: func() bool { return s.Throttled(action) }, ids: ids, wanted: make(map[K]int)}
}

// ask is a question after one thing.
type ask[K ~string, V any] struct {
	id     K
	since  time.Time                   // who has waited longest goes first
	due    time.Time                   // no look before
	wanted func(now time.Time) float64 // how likely a look is to show what is asked for, from 0 to 1
	until  time.Time                   // nobody cares for the answer later; zero: there is no such time

	value  float64 // of wanted, when it was judged
	at     int     // in the heap; -1 once it is out
	look   *look[K, V]
	gone   bool
	answer chan glimpse[V]
}

// glimpse is what a look says of one thing.
type glimpse[V any] struct {
	left, back time.Time // of the look
	shown      V
	found      bool
	err        error // of the look
}

// look is one call under way, and those who wait for it.
type look[K ~string, V any] struct {
	asks    []*ask[K, V]
	members int // who still wait
	cancel  context.CancelFunc
}

// get reads one thing. A failed call fails all who share it, and nobody here
// tries again: that would be a hundred calls for one. That it isn't shown must
// be said twice, for ECS may answer once with a list that lacks it.
func (r *reads[K, V]) get(ctx context.Context, id K) (glimpse[V], error) {
	due := time.Now()
	for absent := 0; ; absent++ {
		got, err := r.await(ctx, &ask[K, V]{id: id, since: due, due: due, wanted: certain})
		if err != nil || got.found || absent == 1 {
			return got, err
		}
		due = got.back.Add(absences[0])
	}
}

// once looks at one thing.
func (r *reads[K, V]) once(ctx context.Context, id K) (glimpse[V], error) {
	now := time.Now()
	return r.await(ctx, &ask[K, V]{id: id, since: now, due: now, wanted: certain})
}

// certain is for who wants to know how things are, whatever that is.
func certain(time.Time) float64 { return 1 }

// await asks, and waits for the answer; its error is that of the look, if that
// has one. A member whose time ends while ECS throttles reads is told so in time
// to answer.
func (r *reads[K, V]) await(ctx context.Context, a *ask[K, V]) (glimpse[V], error) {
	if err := ctx.Err(); err != nil {
		return glimpse[V]{}, r.failed(disk.Unreachable, "not sent: %w", err)
	}
	r.join(ctx, a)
	patient, cancel := deadline.BeforeAnswer(ctx)
	defer cancel()
	select {
	case got := <-a.answer:
		return got, got.err
	case <-patient.Done():
	}
	if !r.throttled() {
		select {
		case got := <-a.answer:
			return got, got.err
		case <-ctx.Done():
		}
	}
	r.quit(a)
	if r.throttled() {
		return glimpse[V]{}, r.failed(disk.Throttled, "held back because ECS throttles %s", r.action)
	}
	return glimpse[V]{}, r.failed(disk.Unreachable, "no answer in time: %w", ctx.Err())
}

// failed is the error of a question that nobody answers.
func (r *reads[K, V]) failed(kind disk.Kind, format string, args ...any) error {
	return &disk.Error{Op: r.action, Kind: kind, Err: fmt.Errorf(format, args...)}
}

// join puts a question to the others.
func (r *reads[K, V]) join(ctx context.Context, a *ask[K, V]) {
	a.answer = make(chan glimpse[V], 1)
	a.until, _ = ctx.Deadline()
	r.mu.Lock()
	defer r.mu.Unlock()
	heap.Push(&r.later, a)
	r.asked++
	r.plan()
}

// quit takes a question back; the last one ends its look.
func (r *reads[K, V]) quit(a *ask[K, V]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case a.gone:
		return
	case a.look != nil:
		if a.look.members--; a.look.members == 0 {
			a.look.cancel()
		}
	case a.at >= 0:
		heap.Remove(&r.later, a.at)
	default:
		r.ready = slices.DeleteFunc(r.ready, func(other *ask[K, V]) bool { return other == a })
		r.forget(a.id)
	}
	a.gone = true
	r.asked--
	r.plan()
}

// plan lets the looks leave that may, and comes back when the next may.
func (r *reads[K, V]) plan() {
	now := time.Now()
	r.ripen(now)
	var next time.Time
	if len(r.later) > 0 {
		next = r.later[0].due
	}
	if len(r.ready) > 0 && !r.held() {
		pause := judgeEvery * time.Duration(1+len(r.ready)/judgeMany)
		at := r.judged.Add(pause)
		if gathered := r.since.Add(gatherTime); gathered.After(at) {
			at = gathered
		}
		if !at.After(now) {
			r.judged, at = now, now.Add(pause)
			for len(r.ready) > 0 && r.worthwhile(now) {
				r.depart(now)
			}
		}
		if len(r.ready) > 0 {
			next = earlier(next, at)
		}
	}
	if r.alarm != nil {
		r.alarm.Stop()
	}
	if !next.IsZero() {
		r.alarm = time.AfterFunc(next.Sub(now), r.wake)
	}
}

func (r *reads[K, V]) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.plan()
}

// ripen moves the questions that are due. An ID that ECS may refuse has a look
// of its own, so that it takes no other along.
func (r *reads[K, V]) ripen(now time.Time) {
	for len(r.later) > 0 && !r.later[0].due.After(now) {
		a, _ := heap.Pop(&r.later).(*ask[K, V])
		if !r.usual.MatchString(string(a.id)) {
			r.fly(now, []*ask[K, V]{a})
			continue
		}
		if len(r.ready) == 0 {
			r.since = a.due
		}
		r.ready = append(r.ready, a)
		r.wanted[a.id]++
	}
}

// held says whether the next look waits for one that is under way: while ECS
// throttles reads, one that isn't full asks for no call of its own.
func (r *reads[K, V]) held() bool { return r.flying > 0 && r.throttled() }

// worthwhile says whether a look is likely to show enough of those that fit into it what they wait for.
func (r *reads[K, V]) worthwhile(now time.Time) bool {
	for _, a := range r.ready {
		a.value = a.wanted(now)
	}
	slices.SortStableFunc(r.ready, func(a, b *ask[K, V]) int {
		return cmp.Or(cmp.Compare(b.value, a.value), a.since.Compare(b.since))
	})
	fit := r.ready[:min(len(r.ready), largestBatch)]
	var sum float64
	for _, a := range fit {
		sum += a.value
		if a.value == 1 && now.Sub(a.due) >= companyTime {
			return true
		}
	}
	return sum >= likelyOver*float64(min(r.asked, largestBatch))
}

// depart lets a look leave with those who have waited longest.
func (r *reads[K, V]) depart(now time.Time) {
	taken := make(map[K]bool, largestBatch)
	var leaving, staying []*ask[K, V]
	for _, a := range r.ready {
		if !taken[a.id] && len(taken) == largestBatch {
			staying = append(staying, a)
			continue
		}
		taken[a.id] = true
		leaving = append(leaving, a)
		r.forget(a.id)
	}
	r.ready, r.since = staying, now
	r.fly(now, leaving)
}

// forget counts one question less after an ID.
func (r *reads[K, V]) forget(id K) {
	if r.wanted[id]--; r.wanted[id] == 0 {
		delete(r.wanted, id)
	}
}

// fly makes the call of a look, for as long as anybody waits for it.
func (r *reads[K, V]) fly(now time.Time, leaving []*ask[K, V]) {
	ctx, cancel := lasting(leaving, func(a *ask[K, V]) time.Time { return a.until })
	l := &look[K, V]{asks: leaving, members: len(leaving), cancel: cancel}
	ids := make([]K, 0, len(leaving))
	for _, a := range leaving {
		a.look = l
		ids = append(ids, a.id)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	r.flying++
	r.ids.Observe(float64(len(ids)))
	go func() {
		defer cancel()
		shown, err := r.describe(ctx, ids)
		r.land(l, now, shown, err)
	}()
}

// lasting returns a context that ends with the last of those who wait, each until
// a time of its own; zero is for ever.
func lasting[T any](all []T, until func(T) time.Time) (context.Context, context.CancelFunc) {
	var last time.Time
	for _, one := range all {
		end := until(one)
		if end.IsZero() {
			return context.WithCancel(context.Background())
		}
		if end.After(last) {
			last = end
		}
	}
	return context.WithDeadline(context.Background(), last)
}

// land hands out what a look brought back.
func (r *reads[K, V]) land(l *look[K, V], left time.Time, shown map[K]V, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	back := time.Now()
	for _, a := range l.asks {
		v, found := shown[a.id]
		if !a.gone {
			r.asked--
		}
		a.gone = true
		a.answer <- glimpse[V]{left: left, back: back, shown: v, found: found, err: err}
	}
	r.flying--
	r.plan()
}

// asks is a heap of questions by the time at which they are due.
type asks[K ~string, V any] []*ask[K, V]

func (q asks[K, V]) Len() int           { return len(q) }
func (q asks[K, V]) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q asks[K, V]) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}

func (q *asks[K, V]) Push(x any) {
	a, _ := x.(*ask[K, V])
	a.at = len(*q)
	*q = append(*q, a)
}

func (q *asks[K, V]) Pop() any {
	last := len(*q) - 1
	a := (*q)[last]
	(*q)[last] = nil
	*q, a.at = (*q)[:last], -1
	return a
}

// earlier returns the earlier of two times; the zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// about returns a look's error as that of one of its disks.
func about(id disk.ID, err error) error {
	e := &disk.Error{Op: transport.DescribeDisks.Name, Disk: id, Kind: disk.KindOf(err), Err: err}
	var shared *disk.Error
	if errors.As(err, &shared) {
		e.RequestID, e.Err = shared.RequestID, shared.Err
	}
	return e
}

// notShown is the error for a disk that a read doesn't show.
func notShown(id disk.ID) error {
	return &disk.Error{Op: transport.DescribeDisks.Name, Disk: id, Kind: disk.NotFound, Err: errAbsent}
}

var errAbsent = errors.New("ECS shows no such disk")
