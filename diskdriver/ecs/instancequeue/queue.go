// Package instancequeue decides when an instance is asked to attach or detach its next disk. It does no I/O.
//
// By default ECS takes one attach or detach of an instance at a time; with parallel operations it takes 32 attaches and 5
// detaches (ECS API, AttachDisk and DetachDisk, error codes). ECS doesn't say which it is, so the limits are learned from what it
// refuses and from what it accepts.
//
// Its figures (TestLimitsOfAnInstanceAreLearned, TestOneProbeSpeaksForAllInstances): an instance that takes 32 attaches and 5 detaches
// at a time is as busy as that from its first operations on; one that takes one at a time refuses no more calls than it gets in its
// first crowd, and then one a minute at most, by which it is found out whether ECS takes more; and what one instance has shown spares
// all others of the account their refusals.
package instancequeue

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// Verb is what an operation does.
type Verb int

// The verbs.
const (
	Attach Verb = iota
	Detach
)

func (v Verb) String() string { return [...]string{"attach", "detach"}[v] }

// Operation is one attach or detach of an instance.
type Operation struct {
	Verb Verb
	Disk disk.ID
}

const (
	// positionKept is for how long an operation whose caller gave up keeps its position.
	positionKept = 10 * time.Minute
	// limitsKept is for how long the limits of an instance are remembered that nobody asks for.
	limitsKept = time.Hour
	// The pauses after which an instance is asked again that is busy with operations of others.
	firstPause = time.Second
	lastPause  = 8 * time.Second
	// shortestRest is for how long an operation at least keeps its slot when its caller has left.
	shortestRest = time.Second
)

// Queues are the queues of all instances of an account. Operations go in the order of their arrival, attaches and detaches alike,
// so that neither starves the other. An operation keeps its slot until ECS is seen to be done with it. Queues may be used from many
// goroutines.
type Queues struct {
	count func(v Verb, state string, change float64)

	mu       sync.Mutex
	arrivals int
	queues   map[disk.InstanceID]*queue
	left     map[disk.ID][]*Slot // slots whose callers have left
	usual    limits              // of instances that have not shown their own
	swept    time.Time
}

// New returns queues that report every change of the number of operations by state: waiting or running.
func New(count func(v Verb, state string, change float64)) *Queues {
	return &Queues{count: count, queues: make(map[disk.InstanceID]*queue), left: make(map[disk.ID][]*Slot), usual: highest()}
}

// queue is that of one instance.
type queue struct {
	instance   disk.InstanceID
	limits     *limits // the usual ones, as long as it has not shown its own
	waiting    []*Slot
	held       map[Operation]*Slot    // those whose call was sent
	positions  map[Operation]position // of those whose callers gave up
	pause      time.Duration
	pauseUntil time.Time // others keep the instance busy
	alarm      *time.Timer
	used       time.Time
}

// position is where an operation stood when its caller gave up.
type position struct {
	arrival int
	until   time.Time
}

// stage is how far an operation has come.
type stage int

const (
	waiting stage = iota
	sent
	running
	gone
)

// Slot is an operation's position in a queue, and then its share of the instance.
type Slot struct {
	// Reply is what ECS has replied to the call. It stays with the slot for the next caller of a slot that was left.
	Reply disk.Reply

	queues    *Queues
	queue     *queue
	operation Operation
	arrival   int
	stage     stage
	turn      chan struct{} // gets an element when the call may be sent
	since     time.Time     // when it was sent
	tried     [3]bool       // the limits that the call tries to exceed, by Limit
	expiry    *time.Timer   // of a slot whose caller has left
}

// Enter joins the queue of an instance, at the position that the same operation had before. If ECS is at work on the operation
// already, its slot is returned, and there is nothing to send. Pending: another caller has the slot.
func (q *Queues) Enter(instance disk.InstanceID, o Operation) (*Slot, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	q.sweep(now)
	one := q.of(instance, now)
	if s := one.held[o]; s != nil {
		if s.expiry == nil {
			return nil, disk.Errorf(disk.Pending, "another call waits for the same %s", o.Verb)
		}
		s.forgetLeft()
		return s, nil
	}
	q.arrivals++
	s := &Slot{queues: q, queue: one, operation: o, arrival: q.arrivals, stage: gone, turn: make(chan struct{}, 1)}
	if p, ok := one.positions[o]; ok {
		s.arrival = p.arrival
		delete(one.positions, o)
	}
	s.move(waiting)
	q.admit(one, now)
	return s, nil
}

// move puts an operation into another stage.
func (s *Slot) move(to stage) {
	q, count := s.queue, func(state string, change float64) { s.queues.count(s.operation.Verb, state, change) }
	switch {
	case s.stage == waiting:
		q.waiting = slices.DeleteFunc(q.waiting, func(other *Slot) bool { return other == s })
		count("waiting", -1)
	case s.holds():
		delete(q.held, s.operation)
		count("running", -1)
	}
	switch s.stage = to; {
	case to == waiting:
		select {
		case <-s.turn: // of before the call was sent
		default:
		}
		at, _ := slices.BinarySearchFunc(q.waiting, s.arrival, func(other *Slot, arrival int) int { return other.arrival - arrival })
		q.waiting = slices.Insert(q.waiting, at, s)
		count("waiting", 1)
	case s.holds():
		q.held[s.operation] = s
		count("running", 1)
	}
}

// Wait waits until the operation's call may be sent. Pending: ctx has ended; the position is kept.
func (s *Slot) Wait(ctx context.Context) error {
	select {
	case <-s.turn:
		return nil
	case <-ctx.Done():
	}
	s.queues.mu.Lock()
	defer s.queues.mu.Unlock()
	ahead, busy := slices.Index(s.queue.waiting, s), total(OfBoth, s.queue.active())
	s.end(time.Now())
	return disk.Errorf(disk.Pending, "position %d in the queue of the instance, which is at work on %d disks; the caller's time is over, and the position is kept", ahead+1, busy)
}

// Start takes the slot at the moment when the call is sent. Between Wait and this moment an operation with an earlier position may
// have come back: then it is false, and the operation has to wait again.
func (s *Slot) Start() bool {
	s.queues.mu.Lock()
	defer s.queues.mu.Unlock()
	now := time.Now()
	if !slices.Contains(s.queue.next(now), s) {
		return false
	}
	s.tried = s.queue.limits.sent(s.operation.Verb, s.queue.active(), now)
	s.since = now
	s.move(sent)
	return true
}

// Accepted notes that ECS has taken the call: the slot is held until Done.
func (s *Slot) Accepted() {
	s.answered(running, func(q *queue, _ time.Time) {
		q.pause, q.pauseUntil = 0, time.Time{}
		q.limits.accepted(s.operation.Verb, q.running(), s.tried)
	})
}

// Refused notes that ECS takes no more now, and puts the operation back to its position.
func (s *Slot) Refused(by Limit) {
	s.answered(waiting, func(q *queue, now time.Time) {
		if total(by, q.active()) > 0 {
			s.queues.lower(q, by, s.tried[by], now)
		} else { // what keeps the instance busy is not from here
			q.pause = min(max(2*q.pause, firstPause), lastPause)
			q.pauseUntil = now.Add(q.pause)
		}
	})
}

// Unsent notes that the call did not get as far as the instance, and puts the operation back to its position.
func (s *Slot) Unsent() {
	s.answered(waiting, func(q *queue, _ time.Time) { q.limits.unsent(s.tried) })
}

// answered moves an operation on whose call was sent, learns from the answer, and admits whoever is next.
func (s *Slot) answered(to stage, learn func(q *queue, now time.Time)) {
	s.queues.mu.Lock()
	defer s.queues.mu.Unlock()
	if s.stage != sent {
		return
	}
	now := time.Now()
	s.move(to)
	learn(s.queue, now)
	s.queues.admit(s.queue, now)
}

// Done gives the slot back: ECS has finished, or never began. An operation whose call was not sent keeps its position. It may be called
// at any time, and again.
func (s *Slot) Done() {
	s.queues.mu.Lock()
	defer s.queues.mu.Unlock()
	s.end(time.Now())
}

// Leave is for a caller who goes before ECS has finished. The slot is kept for the same operation to come back to, for as long
// again as the operation has taken so far, or until a read shows that ECS is done with it.
func (s *Slot) Leave() {
	s.queues.mu.Lock()
	defer s.queues.mu.Unlock()
	now := time.Now()
	if !s.holds() {
		s.end(now)
		return
	}
	id := s.operation.Disk
	s.queues.left[id] = append(s.queues.left[id], s)
	s.expiry = time.AfterFunc(max(now.Sub(s.since), shortestRest), func() {
		s.queues.mu.Lock()
		defer s.queues.mu.Unlock()
		if s.expiry != nil {
			s.forgetLeft()
			s.end(time.Now())
		}
	})
}

// forgetLeft takes a slot from those that were left: its caller has come back, or its operation is over.
func (s *Slot) forgetLeft() {
	s.expiry.Stop()
	s.expiry = nil
	id, left := s.operation.Disk, s.queues.left
	left[id] = slices.DeleteFunc(left[id], func(other *Slot) bool { return other == s })
	if len(left[id]) == 0 {
		delete(left, id)
	}
}

// Observe ends the slots that were left and that a read of their disk shows to be over: the disk is attached to the instance, or it
// is detached. Whoever is next, such as the detach of the same disk, need not wait until a slot expires.
func (q *Queues) Observe(d disk.Disk) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range slices.Clone(q.left[d.ID]) {
		if s.isOver(d) {
			s.forgetLeft()
			s.end(time.Now())
		}
	}
}

// isOver says whether a disk is as the operation was to leave it.
func (s *Slot) isOver(d disk.Disk) bool {
	attached := d.On(s.queue.instance)
	if s.operation.Verb == Detach {
		return !attached
	}
	return attached && d.State == disk.Attached
}

// Sent returns when the operation's call was sent; false if it was not.
func (s *Slot) Sent() (time.Time, bool) {
	s.queues.mu.Lock()
	defer s.queues.mu.Unlock()
	return s.since, s.holds()
}

// Running says whether ECS is known to be at work on the call.
func (s *Slot) Running() bool {
	s.queues.mu.Lock()
	defer s.queues.mu.Unlock()
	return s.stage == running
}

func (s *Slot) holds() bool { return s.stage == sent || s.stage == running }

func (s *Slot) end(now time.Time) {
	q := s.queue
	switch {
	case s.holds():
		q.pause, q.pauseUntil = 0, time.Time{}
	case s.stage == waiting:
		q.positions[s.operation] = position{arrival: s.arrival, until: now.Add(positionKept)}
	}
	s.move(gone)
	s.queues.admit(s.queue, now)
	s.queues.drop(q, now)
}

// admit lets those wait no longer whose turn it is.
func (q *Queues) admit(one *queue, now time.Time) {
	if wait := one.pauseUntil.Sub(now); wait > 0 {
		q.admitAfter(one, wait)
	}
	for _, s := range one.next(now) {
		select {
		case s.turn <- struct{}{}:
		default: // it was admitted before
		}
	}
}

// next returns the operations whose turn it is.
func (q *queue) next(now time.Time) []*Slot {
	if now.Before(q.pauseUntil) {
		return nil
	}
	active := q.active()
	var next []*Slot
	for _, s := range q.waiting {
		if q.limits.join(s.operation.Verb, &active, now) {
			next = append(next, s)
		}
	}
	return next
}

func (q *Queues) admitAfter(one *queue, wait time.Duration) {
	if one.alarm != nil {
		one.alarm.Stop()
	}
	one.alarm = time.AfterFunc(wait, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.admit(one, time.Now())
	})
}

// active is how many operations of each Verb hold a slot.
func (q *queue) active() (n [2]int) {
	for o := range q.held {
		n[o.Verb]++
	}
	return n
}

// running is how many operations of each Verb ECS has accepted.
func (q *queue) running() (n [2]int) {
	for o, s := range q.held {
		if s.stage == running {
			n[o.Verb]++
		}
	}
	return n
}

// lower learns from a refusal. The instances of one account are mostly alike, so it holds for all that have shown nothing else,
// unless another of them has been seen to take more.
func (q *Queues) lower(one *queue, by Limit, tried bool, now time.Time) {
	running := total(by, one.running())
	if one.limits == &q.usual && q.usual[by].taken > max(running, 1) {
		own := q.usual
		one.limits = &own
	}
	one.limits[by].lower(running, tried, now)
}

func (q *Queues) of(instance disk.InstanceID, now time.Time) *queue {
	one := q.queues[instance]
	if one == nil {
		one = &queue{limits: &q.usual, held: make(map[Operation]*Slot), positions: make(map[Operation]position)}
		q.queues[instance] = one
	}
	one.instance, one.used = instance, now
	return one
}

// drop forgets a queue that holds nothing worth keeping.
func (q *Queues) drop(one *queue, now time.Time) {
	for o, p := range one.positions {
		if now.After(p.until) {
			delete(one.positions, o)
		}
	}
	idle := len(one.waiting) == 0 && len(one.held) == 0 && len(one.positions) == 0
	if idle && (one.limits == &q.usual || now.Sub(one.used) > limitsKept) {
		delete(q.queues, one.instance)
	}
}

// sweep drops what nobody came back to.
func (q *Queues) sweep(now time.Time) {
	if now.Sub(q.swept) < time.Minute {
		return
	}
	q.swept = now
	for _, one := range q.queues {
		q.drop(one, now)
	}
}
