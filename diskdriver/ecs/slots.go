package ecs

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// job is what a slot of an instance is for.
type job int

const (
	attaching job = iota
	detaching
)

var jobNames = [...]string{"attach", "detach"}

// limitedBy says which of an instance's limits an ECS code speaks of.
type limitedBy int

const (
	byAttaches limitedBy = limitedBy(attaching) // OperationConflict.DisksAttachingParallellyExceed
	byDetaches limitedBy = limitedBy(detaching) // DisksDetachingOnEcsExceeded
	byAll      limitedBy = 2                    // InvalidOperation.Conflict: attaches and detaches count together
)

const (
	// placeKept is for how long whoever gave up finds his place in the queue
	// as he left it.
	placeKept = 10 * time.Minute
	// laneKept is for how long the limits of an instance are remembered that
	// nobody asks for.
	laneKept = time.Hour
	// The pauses after which an instance is asked again that is busy with
	// what others have begun.
	firstHold = time.Second
	lastHold  = 8 * time.Second
	// weight is that of the newest of the times that jobs take.
	weight = 4
)

// slots lets so many attaches and detaches of an instance run at a time as ECS
// takes: by default one of either, with parallel operations 32 attaches and 5
// detaches (ECS API, AttachDisk and DetachDisk, error codes). ECS doesn't say
// which it is, so it is learned from what ECS refuses and from what it
// accepts. Detaches go before attaches: they make room, and somebody waits for
// the disk elsewhere. A slot is held until ECS is seen to be done.
//
// slots does no I/O. Its methods may be called from many goroutines.
type slots struct {
	meter *slotMeter

	mu       sync.Mutex
	arrivals int
	lanes    map[disk.InstanceID]*lane
	usual    widths           // of instances that have not shown their own
	took     [2]time.Duration // for which a slot of a job is held, a moving average; zero until one was seen
	swept    time.Time
}

func newSlots(meter *slotMeter) *slots {
	return &slots{meter: meter, lanes: make(map[disk.InstanceID]*lane), usual: widest()}
}

// errand is one job on one disk.
type errand struct {
	job  job
	disk disk.ID
}

// lane is one instance: those who wait for it, and those who hold a slot.
type lane struct {
	instance disk.InstanceID
	own      *widths // nil as long as the usual ones stand for it
	line     []*ticket
	sent     [2]int // slots held whose call has no answer yet
	running  [2]int // slots held whose call ECS has accepted
	held     map[errand]*ticket
	places   map[errand]place // of those who gave up
	hold     time.Duration
	until    time.Time // nobody is let in before: others keep the instance busy
	alarm    *time.Timer
	used     time.Time
}

// place is where one who gave up stood in the queue.
type place struct {
	arrival int
	until   time.Time
}

// phase is how far a ticket has come.
type phase int

const (
	waiting phase = iota
	sent
	running
	gone
)

// ticket is one errand's place in the queue of an instance, and then its slot.
type ticket struct {
	slots   *slots
	lane    *lane
	errand  errand
	arrival int
	phase   phase
	called  bool
	call    chan struct{} // gets an element when it may be sent
	since   time.Time     // when the slot was taken
	expiry  *time.Timer   // of a slot whose holder has left
}

// enter joins the queue of an instance, at the place that the same errand had
// before. If ECS is at work on the errand already, the ticket is a running
// one, and there is nothing to send. Pending: another call is at the same errand.
func (s *slots) enter(instance disk.InstanceID, e errand) (*ticket, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.sweep(now)
	l := s.lane(instance, now)
	if t := l.held[e]; t != nil {
		if t.expiry == nil {
			return nil, &disk.Error{Op: opOf(e.job), Disk: e.disk, Instance: instance, Kind: disk.Pending, Err: fmt.Errorf("another call waits for the same %s", jobNames[e.job])}
		}
		t.expiry.Stop()
		t.expiry = nil
		return t, nil
	}
	s.arrivals++
	t := &ticket{slots: s, lane: l, errand: e, arrival: s.arrivals, call: make(chan struct{}, 1)}
	if p, ok := l.places[e]; ok {
		t.arrival = p.arrival
		delete(l.places, e)
	}
	at, _ := slices.BinarySearchFunc(l.line, t, inOrder)
	l.line = slices.Insert(l.line, at, t)
	s.meter.waiting(e.job, 1)
	s.admit(l, now)
	return t, nil
}

// inOrder sorts a queue: detaches first, then by arrival.
func inOrder(a, b *ticket) int {
	if a.errand.job != b.errand.job {
		return int(b.errand.job - a.errand.job)
	}
	return a.arrival - b.arrival
}

// wait waits until the errand's call may be sent. The error is Pending, comes
// in time to answer, and tells the place in the queue.
func (t *ticket) wait(ctx context.Context) error {
	patient, cancel := patience(ctx)
	defer cancel()
	select {
	case <-t.call:
		return nil
	case <-patient.Done():
	}
	s := t.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	s.meter.waiting(t.errand.job, -1)
	return s.giveUp(t, time.Now(), "the caller's time is over")
}

// start takes the slot at the moment when the call is sent. Between the wait
// and this moment somebody more urgent may have come: then it is false, and
// the errand has to wait again.
func (t *ticket) start() bool {
	s := t.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	l := t.lane
	ok, probe := l.mayGo(t, s.widths(l), now)
	if !ok {
		t.called = false
		return false
	}
	l.line = slices.DeleteFunc(l.line, func(other *ticket) bool { return other == t })
	if probe {
		s.probe(l, t.errand.job, now)
	}
	t.phase, t.since = sent, now
	l.sent[t.errand.job]++
	l.held[t.errand] = t
	s.meter.waiting(t.errand.job, -1)
	s.meter.running(t.errand.job, 1)
	return true
}

// accepted notes that ECS has taken the call: the slot is held until done.
func (t *ticket) accepted() {
	s := t.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.phase != sent {
		return
	}
	now, l := time.Now(), t.lane
	t.phase = running
	l.sent[t.errand.job]--
	l.running[t.errand.job]++
	l.hold, l.until = 0, time.Time{}
	s.learn(l, func(w *widths) { w.took(t.errand.job, l.running) })
	s.admit(l, now)
}

// refused notes that ECS takes no more now, and puts the errand back to its
// place in the queue.
func (t *ticket) refused(by limitedBy) {
	s := t.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.phase != sent {
		return
	}
	now, l := time.Now(), t.lane
	l.sent[t.errand.job]--
	if count(by, l.running)+count(by, l.sent) > 0 {
		s.narrow(l, by, now)
	} else { // what keeps the instance busy is not from here
		l.hold = min(max(2*l.hold, firstHold), lastHold)
		l.until = now.Add(l.hold)
	}
	s.putBack(t, now)
}

// unsent notes that the call did not get as far as the instance, and puts the
// errand back to its place in the queue.
func (t *ticket) unsent() {
	s := t.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.phase == sent {
		t.lane.sent[t.errand.job]--
		s.putBack(t, time.Now())
	}
}

func (s *slots) putBack(t *ticket, now time.Time) {
	l := t.lane
	delete(l.held, t.errand)
	t.phase, t.called = waiting, false
	at, _ := slices.BinarySearchFunc(l.line, t, inOrder)
	l.line = slices.Insert(l.line, at, t)
	s.meter.running(t.errand.job, -1)
	s.meter.waiting(t.errand.job, 1)
	s.admit(l, now)
}

// done gives the slot back: ECS has finished, or never began. It may be called
// at any time, and again.
func (t *ticket) done() {
	s := t.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(t, time.Now())
}

// leave is for a holder who goes before ECS has finished. The slot is kept for
// as long as the job is likely to take yet, and for him to come back to.
func (t *ticket) leave() {
	s := t.slots
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.phase != sent && t.phase != running {
		s.end(t, time.Now())
		return
	}
	usual := s.took[t.errand.job]
	if usual == 0 {
		usual = max(time.Since(t.since), time.Second)
	}
	left := max(2*usual-time.Since(t.since), usual)
	t.expiry = time.AfterFunc(left, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if t.expiry != nil {
			s.end(t, time.Now())
		}
	})
}

// holds says whether ECS is at work on the errand already.
func (t *ticket) holds() bool {
	t.slots.mu.Lock()
	defer t.slots.mu.Unlock()
	return t.phase == sent || t.phase == running
}

// age is how long ago the slot was taken.
func (t *ticket) age() time.Duration {
	t.slots.mu.Lock()
	defer t.slots.mu.Unlock()
	return time.Since(t.since)
}

func (s *slots) end(t *ticket, now time.Time) {
	l := t.lane
	switch t.phase {
	case sent:
		l.sent[t.errand.job]--
	case running:
		l.running[t.errand.job]--
		if t.expiry == nil {
			s.took[t.errand.job] = average(s.took[t.errand.job], now.Sub(t.since))
		}
	case waiting:
		l.line = slices.DeleteFunc(l.line, func(other *ticket) bool { return other == t })
		s.meter.waiting(t.errand.job, -1)
	}
	if t.phase == sent || t.phase == running {
		delete(l.held, t.errand)
		s.meter.running(t.errand.job, -1)
		l.hold, l.until = 0, time.Time{}
	}
	t.phase = gone
	s.admit(l, now)
	s.drop(l, now)
}

// average adds the newest time to a moving average, which is zero before the first.
func average(before, newest time.Duration) time.Duration {
	if before == 0 {
		return newest
	}
	return before + (newest-before)/weight
}

// giveUp takes a waiting ticket out of the queue and keeps its place.
func (s *slots) giveUp(t *ticket, now time.Time, why string) error {
	l := t.lane
	ahead := slices.Index(l.line, t)
	busy := count(byAll, l.sent) + count(byAll, l.running)
	l.line = slices.Delete(l.line, ahead, ahead+1)
	l.places[t.errand] = place{arrival: t.arrival, until: now.Add(placeKept)}
	t.phase = gone
	s.admit(l, now)
	return &disk.Error{Op: opOf(t.errand.job), Disk: t.errand.disk, Instance: l.instance, Kind: disk.Pending,
		Err: fmt.Errorf("place %d in the queue of the instance, which is at work on %d disks; %s, and the place is kept", ahead+1, busy, why)}
}

func opOf(j job) string {
	if j == detaching {
		return detachDisk.name
	}
	return attachDisk.name
}

// admit calls those whose turn it is.
func (s *slots) admit(l *lane, now time.Time) {
	if wait := l.until.Sub(now); wait > 0 {
		s.wakeAfter(l, wait)
		return
	}
	w := s.widths(l)
	next := l.crew()
	for _, t := range l.line {
		ok, _ := next.join(t.errand.job, w, now)
		if ok && !t.called {
			t.called = true
			select {
			case t.call <- struct{}{}:
			default: // called before, and not heard yet
			}
		}
	}
}

func (s *slots) wakeAfter(l *lane, wait time.Duration) {
	if l.alarm != nil {
		l.alarm.Stop()
	}
	l.alarm = time.AfterFunc(wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.admit(l, time.Now())
	})
}

// mayGo says whether it is a ticket's turn, and whether it goes as a probe.
func (l *lane) mayGo(t *ticket, w *widths, now time.Time) (ok, probe bool) {
	if t.phase != waiting || now.Before(l.until) {
		return false, false
	}
	next := l.crew()
	for _, other := range l.line {
		ok, probe = next.join(other.errand.job, w, now)
		if other == t {
			return ok, probe
		}
	}
	return false, false
}

func (s *slots) lane(instance disk.InstanceID, now time.Time) *lane {
	l := s.lanes[instance]
	if l == nil {
		l = &lane{instance: instance, held: make(map[errand]*ticket), places: make(map[errand]place)}
		s.lanes[instance] = l
	}
	l.used = now
	return l
}

// drop forgets a lane that holds nothing worth keeping.
func (s *slots) drop(l *lane, now time.Time) {
	for e, p := range l.places {
		if now.After(p.until) {
			delete(l.places, e)
		}
	}
	idle := len(l.line) == 0 && len(l.held) == 0 && len(l.places) == 0
	if idle && (l.own == nil || now.Sub(l.used) > laneKept) {
		delete(s.lanes, l.instance)
	}
}

// sweep drops what nobody came back to.
func (s *slots) sweep(now time.Time) {
	if now.Sub(s.swept) < time.Minute {
		return
	}
	s.swept = now
	for _, l := range s.lanes {
		s.drop(l, now)
	}
}
