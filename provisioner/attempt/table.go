package attempt

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/provisioner/request"
)

// Table holds the Records of all claims. Events are posted to it; a worker gets the
// actions that follow from a claim's events, and passes the result of the last one
// back. It is safe for concurrent use, except that a queue must serialize Next and Result
// of one claim.
type Table struct {
	limits *Limits
	ready  func(types.UID)

	mu      sync.Mutex
	records map[types.UID]*entry
	since   time.Time
}

type entry struct {
	record  *Record
	inbox   []Event
	working bool              // between Next and Done: actions of the Record may be under way
	settled map[string]func() // by who waits until it is settled
}

// isSettled says whether no volume is under way, and no action either.
func (e *entry) isSettled() bool { return !e.working && !e.record.IsOpen() }

// take empties the inbox and returns its events, and a last one.
func (e *entry) take(last Event) []Event {
	events := e.inbox
	e.inbox = nil
	return append(events, last)
}

// NewTable returns a Table without Records. ready is called for each claim that has
// events, and must not block; the Table sets limits.LeadingSince.
func NewTable(limits Limits, ready func(claim types.UID)) *Table {
	t := &Table{limits: &limits, ready: ready, records: map[types.UID]*entry{}}
	limits.LeadingSince = func() time.Time { return t.since } // t.mu is held while a Record steps
	return t
}

// Lead says that this process leads from now on.
func (t *Table) Lead(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.since = now
}

// Begin posts an event, for a claim that has no Record, too. It is for Started,
// Recovered, for a claim whose request may be prefetched and for a PersistentVolume
// whose claim isn't known to be bound.
func (t *Table) Begin(claim types.UID, e Event) { t.post(claim, e, true) }

// Post posts an event if the claim has a Record, and says whether it has one.
func (t *Table) Post(claim types.UID, e Event) bool { return t.post(claim, e, false) }

func (t *Table) post(claim types.UID, e Event, begin bool) bool {
	t.mu.Lock()
	at, ok := t.records[claim]
	if !ok && begin {
		at = &entry{record: NewRecord(t.limits)}
		t.records[claim] = at
		ok = true
	}
	if ok {
		at.inbox = append(at.inbox, e)
	}
	t.mu.Unlock()
	if ok {
		t.ready(claim)
	}
	return ok
}

// Next takes all events of a claim and a Tick, and returns the actions to do. The caller
// calls Done once they are done, and those that Result returns.
func (t *Table) Next(claim types.UID, now time.Time) []Action {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, ok := t.records[claim]
	if !ok {
		return nil
	}
	at.working = true
	actions := at.record.steps(at.take(Tick{}), now)
	t.drop(claim, at)
	return actions
}

// Result takes the result of the last action that Next or Result has returned.
func (t *Table) Result(claim types.UID, e Event, now time.Time) []Action {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.records[claim]
	actions := at.record.steps(at.take(e), now) // events from before the result come first
	t.drop(claim, at)
	return actions
}

// Done notes that all actions of a claim are done, and tells those who wait until it is settled.
func (t *Table) Done(claim types.UID) {
	for _, tell := range t.done(claim) {
		tell()
	}
}

// done returns who is to be told that the claim is settled.
func (t *Table) done(claim types.UID) (settled map[string]func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, ok := t.records[claim]
	if !ok {
		return nil
	}
	at.working = false
	if at.isSettled() {
		settled, at.settled = at.settled, nil
	}
	t.drop(claim, at)
	return settled
}

// drop drops a Record that has ended. t.mu is held.
func (t *Table) drop(claim types.UID, at *entry) {
	if at.record.Phase() == Ended && len(at.inbox) == 0 && !at.working {
		delete(t.records, claim)
	}
}

// NodeChanged wakes the claims that a change of the node's topology may help: those for which it was selected, whatever the last attempt
// failed by, and those that wait for any node.
func (t *Table) NodeChanged(node string) {
	t.wake(t.claims(func(r *Record) bool {
		return r.awaitsAnyNode || !r.open && r.attempted != nil && selectedNode(r.attempted) == node
	}), Woken{})
}

// ClassChanged wakes the claims of a class.
func (t *Table) ClassChanged(class string) {
	t.wake(t.claims(func(r *Record) bool { return r.class() == class }), ClassChanged{})
}

// DriverBack wakes the claims that may wait for the driver.
func (t *Table) DriverBack() {
	t.wake(t.claims(func(r *Record) bool { return !r.transientSince.IsZero() || r.open }), Woken{})
}

func (t *Table) claims(which func(*Record) bool) []types.UID {
	t.mu.Lock()
	defer t.mu.Unlock()
	var claims []types.UID
	for claim, at := range t.records {
		if which(at.record) {
			claims = append(claims, claim)
		}
	}
	return claims
}

func (t *Table) wake(claims []types.UID, e Event) {
	for _, claim := range claims {
		t.Post(claim, e)
	}
}

// Phase returns the phase of the claim's Record, New for a claim that has none.
func (t *Table) Phase(claim types.UID) Phase {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at, ok := t.records[claim]; ok {
		return at.record.phase
	}
	return New
}

// Standing returns how far the claim has come to a volume, and whether one of its was deleted
// because another claim of its Pod could not have one.
func (t *Table) Standing(claim types.UID) (progress Progress, discarded bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at, ok := t.records[claim]; ok {
		return at.record.progress(), at.record.discards > 0
	}
	return NoAttempt, false
}

// Settled says whether no volume is under way for the claim, and no action either. If one is, Done calls then once none is: the last
// one of each who asks.
func (t *Table) Settled(claim types.UID, who string, then func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, ok := t.records[claim]
	if !ok || at.isSettled() {
		return true
	}
	if at.settled == nil {
		at.settled = map[string]func(){}
	}
	at.settled[who] = then
	return false
}

// Request returns the open request of a claim, or nil.
func (t *Table) Request(claim types.UID) *request.Request {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at, ok := t.records[claim]; ok {
		return at.record.Request()
	}
	return nil
}

// Requests returns the open requests.
func (t *Table) Requests() []*request.Request {
	t.mu.Lock()
	defer t.mu.Unlock()
	var open []*request.Request
	for _, at := range t.records {
		if r := at.record.Request(); r != nil {
			open = append(open, r)
		}
	}
	return open
}

// Open returns the number of volumes under way, and how many of them may exist by now.
func (t *Table) Open() (all, doubtful int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, at := range t.records {
		if at.record.IsOpen() {
			all++
		}
		if at.record.IsDoubtful() {
			doubtful++
		}
	}
	return all, doubtful
}
