package ecssim

import (
	"slices"
	"strings"
	"time"

	"github.com/topodisk/topodisk/ecssim/state"
)

// OverviewQuery bounds an Overview.
type OverviewQuery struct {
	Rows  int        // of each list at most; the newest
	Disk  string     // part of a disk's ID, name, zone, category or status, or of an instance's ID; empty is all disks
	Calls CallFilter // of Overview.Calls
}

// CallFilter says which calls are wanted. Its texts are parts of what they
// name, in any case; empty ones are all.
type CallFilter struct {
	Action string
	Code   string // SuccessCode is those that were granted
	Disk   string // that the call concerns
}

// SuccessCode stands for the empty code of a call that was granted, where a
// person writes or reads one.
const SuccessCode = "ok"

// Newest is the newest part of a list, the newest first.
type Newest[T any] struct {
	Rows  []T
	Total int // of the whole list
}

// Hidden is how many rows of the list are left out.
func (n Newest[T]) Hidden() int { return n.Total - len(n.Rows) }

// add adds a row that is older than those before, unless there are limit.
func (n *Newest[T]) add(limit int, row func() T) {
	if n.Total++; len(n.Rows) < limit {
		n.Rows = append(n.Rows, row())
	}
}

// Overview is a State for people: what there is at one moment, with lists that
// are cut, so that it costs little however much there is.
type Overview struct {
	Now            time.Time
	Region         string
	Zones          []string
	LatencyProfile string // empty if the latencies are those of no profile
	Queues         Queues
	Instances      Newest[InstanceState] // in their order
	Disks          Newest[DiskOverview]  // data disks
	Changes        Newest[PendingChange] // of all disks
	Snapshots      Newest[SnapshotState]
	Tasks          Newest[TaskState]
	Calls          Newest[Call]
	DisksByStatus  map[string]int // data disks
	DisksMade      int            // since the start
	DisksDeleted   int
	Stuck          int // transitions that FaultStuck keeps back
	Stock          []StockLevel
	Throttle       ThrottleState
	Faults         []Fault
	Denials        []Denial
	Counts         map[string]map[string]int // of calls since the start, by action and code, "" for success
	MostAtOnce     int                       // requests that were under way together
	Connections    int                       // as in Stats
	// Broken is what Check finds wrong, empty for nothing. With more than
	// checkedDisks disks nobody looks, and Unchecked is true.
	Broken    string
	Unchecked bool
}

// checkedDisks is up to how many disks an Overview is checked: that takes half
// a microsecond a disk, for which every other request waits.
const checkedDisks = 5000

// Overview returns what there is at this moment.
func (s *Server) Overview(q OverviewQuery) Overview {
	var o Overview
	s.look(func(now time.Time) {
		r := s.service.Region
		made, deleted := r.DisksMade()
		o = Overview{
			Now: now, Region: s.config.Region, Zones: slices.Clone(s.config.Zones),
			LatencyProfile: s.service.Timing.ProfileName(), Queues: s.config.Queues,
			DisksByStatus: map[string]int{}, DisksMade: made, DisksDeleted: deleted, Stuck: r.StuckChanges(),
			Stock: r.StockLevels(), Throttle: s.limits.State(now), Faults: s.faults.All(), Denials: s.permissions.Denials(),
			Calls: s.ledger.newest(q.Calls, q.Rows), Counts: s.ledger.copyCounts(),
			MostAtOnce: s.ledger.stats.most, Connections: s.ledger.stats.connections,
		}
		for i := range r.Present().Instances() {
			o.Instances.add(q.Rows, i.Export)
		}
		for d := range r.Present().Disks(nil, true) {
			o.addDisk(d, q)
		}
		for n := range r.Present().Snapshots(nil, true) {
			o.Snapshots.add(q.Rows, func() SnapshotState { return n.Export(now) })
		}
		for t := range r.Present().Tasks() {
			o.Tasks.add(q.Rows, t.Export)
		}
		if o.Unchecked = len(r.AllDisks()) > checkedDisks; o.Unchecked {
			return
		}
		if err := r.Check(); err != nil {
			o.Broken = err.Error()
		}
	})
	return o
}

func (o *Overview) addDisk(d *state.Disk, q OverviewQuery) {
	if d.System {
		return // it is a part of its instance
	}
	status := d.State()
	o.DisksByStatus[status]++
	if q.Disk == "" || d.Matches(status, strings.ToLower(q.Disk)) {
		o.Disks.add(q.Rows, d.Overview)
	}
	for _, change := range d.Pending() {
		o.Changes.add(q.Rows, func() PendingChange { return change })
	}
}

// newest returns the newest calls that a filter lets through.
func (l *ledger) newest(f CallFilter, limit int) Newest[Call] {
	var n Newest[Call]
	f = CallFilter{strings.ToLower(f.Action), strings.ToLower(f.Code), strings.ToLower(f.Disk)}
	for i := range l.calls {
		if c := l.kept(len(l.calls) - 1 - i); f.matches(c.Call) {
			n.add(limit, c.read)
		}
	}
	return n
}

// matches tells whether a filter whose texts are in lower case lets a call
// through.
func (f CallFilter) matches(c Call) bool {
	granted := f.Code == SuccessCode && c.Code == ""
	contains := func(text, part string) bool { return strings.Contains(strings.ToLower(text), part) }
	refused := f.Code != SuccessCode && contains(c.Code, f.Code)
	return (granted || refused) && contains(c.Action, f.Action) && contains(c.Disk, f.Disk)
}
