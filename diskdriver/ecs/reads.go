package ecs

import (
	"container/heap"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// largestBatch is how many IDs one DescribeDisks takes.
const largestBatch = 100

// How often looks leave. Full ones leave at once, and so do a few after a time
// of rest. Otherwise one leaves in a second, or in a quarter of one if somebody
// can't go on without the answer.
const (
	gatherTime  = 2 * time.Millisecond // for company
	calmPause   = time.Second
	urgentPause = 250 * time.Millisecond
	restedLooks = 4
)

// reads answers questions after single disks with shared calls. It makes none
// while nobody asks.
type reads struct {
	describe  func(context.Context, []disk.ID) (map[disk.ID]disk.Disk, error)
	throttled func() bool
	ids       prometheus.Observer // of each call

	mu     sync.Mutex
	later  asks            // not due yet
	ready  []*ask          // due, and in no look yet
	wanted map[disk.ID]int // how many of ready ask for an ID
	since  time.Time       // when the first of ready was due
	flying int             // looks that have left and have no answer
	left   time.Time       // when the last look left
	credit time.Time       // the rest is used up until this time
	alarm  *time.Timer
}

func newReads(describe func(context.Context, []disk.ID) (map[disk.ID]disk.Disk, error), throttled func() bool, ids prometheus.Observer) *reads {
	return &reads{describe: describe, throttled: throttled, ids: ids, wanted: make(map[disk.ID]int)}
}

// ask is a question after one disk.
type ask struct {
	id     disk.ID
	since  time.Time   // who has waited longest goes first
	due    time.Time   // no look before
	urgent func() bool // somebody can't go on without the answer
	until  time.Time   // nobody cares for the answer later; zero: there is no such time

	at     int // in the heap; -1 once it is out
	look   *look
	gone   bool
	answer chan glimpse
}

// glimpse is what a look says of one disk.
type glimpse struct {
	left, back time.Time // of the look
	disk       disk.Disk
	found      bool
	err        error // of the look
}

// look is one call under way, and those who wait for it.
type look struct {
	asks    []*ask
	members int // who still wait
	cancel  context.CancelFunc
}

func always() bool { return true }

// get reads one disk. A failed call fails all who share it, and nobody here
// tries again: that would be a hundred calls for one. That a disk isn't shown
// must be said twice, for ECS may answer once with a list that lacks it.
func (r *reads) get(ctx context.Context, id disk.ID) (disk.Disk, error) {
	due := time.Now()
	for absent := 0; absent < 2; absent++ {
		got, err := r.await(ctx, &ask{id: id, since: due, due: due, urgent: always})
		switch {
		case err != nil:
			return disk.Disk{}, &disk.Error{Op: describeDisks.name, Disk: id, Kind: disk.KindOf(err), Err: err}
		case got.err != nil:
			return disk.Disk{}, about(id, got.err)
		case got.found:
			return got.disk, nil
		}
		due = got.back.Add(absences[0])
	}
	return disk.Disk{}, notShown(id)
}

// await asks, and waits for the answer. A member whose time ends while ECS
// throttles reads is told so in time to answer.
func (r *reads) await(ctx context.Context, a *ask) (glimpse, error) {
	if err := ctx.Err(); err != nil {
		return glimpse{}, disk.Errorf(disk.Unreachable, "not sent: %w", err)
	}
	r.join(ctx, a)
	patient, cancel := patience(ctx)
	defer cancel()
	select {
	case got := <-a.answer:
		return got, nil
	case <-patient.Done():
	}
	if !r.throttled() {
		select {
		case got := <-a.answer:
			return got, nil
		case <-ctx.Done():
		}
	}
	r.quit(a)
	if r.throttled() {
		return glimpse{}, disk.Errorf(disk.Throttled, "held back because ECS throttles %s", describeDisks.name)
	}
	return glimpse{}, disk.Errorf(disk.Unreachable, "no answer in time: %w", ctx.Err())
}

// join puts a question to the others.
func (r *reads) join(ctx context.Context, a *ask) {
	a.answer = make(chan glimpse, 1)
	a.until, _ = ctx.Deadline()
	r.mu.Lock()
	defer r.mu.Unlock()
	heap.Push(&r.later, a)
	r.plan()
}

// quit takes a question back; the last one ends its look.
func (r *reads) quit(a *ask) {
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
		r.ready = slices.DeleteFunc(r.ready, func(other *ask) bool { return other == a })
		r.forget(a.id)
	}
	a.gone = true
}

// plan lets the looks leave that may, and comes back when the next may.
func (r *reads) plan() {
	now := time.Now()
	r.ripen(now)
	for len(r.wanted) >= largestBatch {
		r.depart(now)
	}
	var next time.Time
	if len(r.later) > 0 {
		next = r.later[0].due
	}
	if len(r.ready) > 0 && !r.held() {
		at := r.mayLeave()
		if !at.After(now) {
			r.depart(now)
		} else {
			next = earlier(next, at)
			if turn := r.left.Add(urgentPause); turn.After(now) {
				next = earlier(next, turn) // somebody may be in a hurry by then
			}
		}
	}
	if r.alarm != nil {
		r.alarm.Stop()
	}
	if !next.IsZero() {
		r.alarm = time.AfterFunc(next.Sub(now), r.wake)
	}
}

func (r *reads) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.plan()
}

// ripen moves the questions that are due. An ID that ECS may refuse has a look
// of its own, so that it takes no other along.
func (r *reads) ripen(now time.Time) {
	for len(r.later) > 0 && !r.later[0].due.After(now) {
		a, _ := heap.Pop(&r.later).(*ask)
		if !usualID.MatchString(string(a.id)) {
			r.fly(now, []*ask{a})
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
func (r *reads) held() bool { return r.flying > 0 && r.throttled() }

// mayLeave returns when a look that isn't full may leave.
func (r *reads) mayLeave() time.Time {
	at := r.credit.Add(-(restedLooks - 1) * calmPause)
	if slices.ContainsFunc(r.ready, func(a *ask) bool { return a.urgent() }) {
		at = earlier(at, r.left.Add(urgentPause))
	}
	if gathered := r.since.Add(gatherTime); gathered.After(at) {
		return gathered
	}
	return at
}

// depart lets a look leave with those who have waited longest.
func (r *reads) depart(now time.Time) {
	slices.SortStableFunc(r.ready, func(a, b *ask) int { return a.since.Compare(b.since) })
	taken := make(map[disk.ID]bool, largestBatch)
	var leaving, staying []*ask
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
	r.left = now
	if r.credit.Before(now) {
		r.credit = now
	}
	r.credit = earlier(r.credit.Add(calmPause), now.Add(restedLooks*calmPause))
	r.fly(now, leaving)
}

// forget counts one question less after an ID.
func (r *reads) forget(id disk.ID) {
	if r.wanted[id]--; r.wanted[id] == 0 {
		delete(r.wanted, id)
	}
}

// fly makes the call of a look, for as long as anybody waits for it.
func (r *reads) fly(now time.Time, leaving []*ask) {
	ctx, cancel := lasting(leaving)
	l := &look{asks: leaving, members: len(leaving), cancel: cancel}
	ids := make([]disk.ID, 0, len(leaving))
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
		disks, err := r.describe(ctx, ids)
		r.land(l, now, disks, err)
	}()
}

// lasting returns a context that ends with the last of those who wait.
func lasting(all []*ask) (context.Context, context.CancelFunc) {
	var until time.Time
	for _, a := range all {
		if a.until.IsZero() {
			return context.WithCancel(context.Background())
		}
		if a.until.After(until) {
			until = a.until
		}
	}
	return context.WithDeadline(context.Background(), until)
}

// land hands out what a look brought back.
func (r *reads) land(l *look, left time.Time, disks map[disk.ID]disk.Disk, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	back := time.Now()
	for _, a := range l.asks {
		d, found := disks[a.id]
		a.gone = true
		a.answer <- glimpse{left: left, back: back, disk: d, found: found, err: err}
	}
	r.flying--
	r.plan()
}

// asks is a heap of questions by the time at which they are due.
type asks []*ask

func (q asks) Len() int           { return len(q) }
func (q asks) Less(i, j int) bool { return q[i].due.Before(q[j].due) }
func (q asks) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}

func (q *asks) Push(x any) {
	a, _ := x.(*ask)
	a.at = len(*q)
	*q = append(*q, a)
}

func (q *asks) Pop() any {
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
	e := &disk.Error{Op: describeDisks.name, Disk: id, Kind: disk.KindOf(err), Err: err}
	var shared *disk.Error
	if errors.As(err, &shared) {
		e.RequestID, e.Err = shared.RequestID, shared.Err
	}
	return e
}

// notShown is the error for a disk that a read doesn't show.
func notShown(id disk.ID) error {
	return &disk.Error{Op: describeDisks.name, Disk: id, Kind: disk.NotFound, Err: errAbsent}
}

var errAbsent = errors.New("ECS shows no such disk")
