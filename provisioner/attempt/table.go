package attempt

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/provisioner/request"
)

// Table holds the Records of all claims. Whoever hears of a claim posts an event; a
// worker that takes the claim up gets the actions that the events so far lead to, and
// posts the result of the last one. It is safe for concurrent use, but for Next and
// Result of one claim, which a queue must keep apart.
type Table struct {
	limits *Limits
	ready  func(types.UID)

	mu       sync.Mutex
	records  map[types.UID]*entry
	unplaced map[string]map[types.UID]struct{} // claims by the node whose change may help; empty: any node's
	since    time.Time
}

type entry struct {
	record   *Record
	inbox    []Event
	working  bool      // from Next to Done: actions of the Record may not be done yet
	unplaced *Unplaced // as it is filed
}

// take empties the inbox and returns its events, and a last one.
func (e *entry) take(last Event) []Event {
	events := e.inbox
	e.inbox = nil
	return append(events, last)
}

// NewTable returns a Table without Records. ready is called for each claim that has
// events or whose pause is over, and returns at once; limits.LeadingSince is the Table's.
func NewTable(limits Limits, ready func(claim types.UID)) *Table {
	t := &Table{limits: &limits, ready: ready, records: map[types.UID]*entry{}, unplaced: map[string]map[types.UID]struct{}{}}
	limits.LeadingSince = func() time.Time { return t.since } // t.mu is held by who steps a Record
	return t
}

// Lead notes that no other process provisions from now on.
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

// Next takes all events of a claim and returns what is to be done. Its pause may be
// over as well: the queue hands a claim out once for both. Done follows when all is
// done, that which Result returns, too.
func (t *Table) Next(claim types.UID, now time.Time) []Action {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, ok := t.records[claim]
	if !ok {
		return nil
	}
	at.working = true
	actions := at.record.steps(at.take(Tick{}), now)
	t.file(claim, at)
	return actions
}

// Result takes the result of the last action that Next or Result has returned.
func (t *Table) Result(claim types.UID, e Event, now time.Time) []Action {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.records[claim]
	actions := at.record.steps(at.take(e), now) // what has happened meanwhile comes first
	t.file(claim, at)
	return actions
}

// Done notes that all actions of a claim are done.
func (t *Table) Done(claim types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at, ok := t.records[claim]; ok {
		at.working = false
		t.file(claim, at)
	}
}

// file brings what is known of all Records up to date. t.mu is held.
func (t *Table) file(claim types.UID, at *entry) {
	unplaced := at.record.Unplaced()
	ended := at.record.Phase() == Ended && len(at.inbox) == 0 && !at.working
	if at.unplaced != nil && (ended || unplaced == nil || *unplaced != *at.unplaced) {
		claims := t.unplaced[at.unplaced.Node]
		if delete(claims, claim); len(claims) == 0 {
			delete(t.unplaced, at.unplaced.Node)
		}
	}
	if at.unplaced = unplaced; unplaced != nil && !ended {
		if t.unplaced[unplaced.Node] == nil {
			t.unplaced[unplaced.Node] = map[types.UID]struct{}{}
		}
		t.unplaced[unplaced.Node][claim] = struct{}{}
	}
	if ended {
		delete(t.records, claim)
	}
}

// NodeChanged wakes the claims that a change of the node's topology may help.
func (t *Table) NodeChanged(node string) {
	t.mu.Lock()
	var claims []types.UID
	for _, at := range []string{node, ""} {
		for claim := range t.unplaced[at] {
			claims = append(claims, claim)
		}
	}
	t.mu.Unlock()
	t.wake(claims, Woken{})
}

// ClassChanged wakes the claims of a class.
func (t *Table) ClassChanged(class string) {
	t.wake(t.claims(func(r *Record) bool { return r.class() == class }), ClassChanged{})
}

// DriverBack wakes the claims whose last attempt has failed for want of the driver.
func (t *Table) DriverBack() {
	t.wake(t.claims(func(r *Record) bool { return !r.held.IsZero() || r.open }), Woken{})
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

// Phase returns where the claim's Record stands, New for a claim that has none.
func (t *Table) Phase(claim types.UID) Phase {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at, ok := t.records[claim]; ok {
		return at.record.phase
	}
	return New
}

// IsSettled says whether no volume is under way for the claim, and all is done that follows from that.
func (t *Table) IsSettled(claim types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, ok := t.records[claim]
	return !ok || !at.working && !at.record.IsOpen()
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
