package ecssim

import (
	"slices"
	"strings"
	"time"

	"github.com/topodisk/topodisk/ecssim/faults"
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
	Throttle       faults.ThrottleState
	Faults         []faults.Fault
	Denials        []faults.Denial
	Counts         map[string]map[string]int // of calls since the start, by action and code, "" for success
	MostAtOnce     int                       // requests that were under way together
	Connections    int                       // as in Stats
	// Broken is what Check finds wrong, empty for nothing. With more than
	// checkedDisks disks nobody looks, and Unchecked is true.
	Broken    string
	Unchecked bool
}

// DiskOverview is a disk and what is about to change of it.
type DiskOverview struct {
	DiskState
	Locks   []string // reasons for which it is locked
	Pending []PendingChange
}

// PendingChange is a change of a disk that is under way.
type PendingChange struct {
	Disk  string
	What  string // such as "Attaching to i-1"
	Cause string // an action and its request ID, or a task
	Since time.Time
}

// checkedDisks is up to how many disks an Overview is checked: that takes half
// a microsecond a disk, for which every other request waits.
const checkedDisks = 5000

// Overview returns what there is at this moment.
func (s *Server) Overview(q OverviewQuery) Overview {
	var o Overview
	s.look(func(now time.Time) {
		o = Overview{
			Now: now, Region: s.config.Region, Zones: slices.Clone(s.config.Zones),
			LatencyProfile: s.timing.ProfileName(), Queues: s.config.Queues,
			DisksByStatus: map[string]int{}, DisksMade: s.disks.made, DisksDeleted: s.disks.deleted, Stuck: len(s.stuck),
			Stock: s.levels(), Throttle: s.limits.State(now), Faults: s.faults.All(), Denials: s.permissions.Denials(),
			Calls: s.ledger.newest(q.Calls, q.Rows), Counts: s.ledger.copyCounts(),
			MostAtOnce: s.ledger.stats.most, Connections: s.ledger.stats.connections,
		}
		for _, i := range s.fleet.inOrder() {
			o.Instances.add(q.Rows, i.export)
		}
		for d := range s.disks.newestFirst() {
			o.addDisk(d, q)
		}
		for _, n := range slices.Backward(s.snapshots.order) {
			o.Snapshots.add(q.Rows, func() SnapshotState { return n.export(now) })
		}
		for _, t := range slices.Backward(s.tasks) {
			o.Tasks.add(q.Rows, t.export)
		}
		if o.Unchecked = len(s.disks.order) > checkedDisks; o.Unchecked {
			return
		}
		if err := s.broken(); err != nil {
			o.Broken = err.Error()
		}
	})
	return o
}

func (o *Overview) addDisk(d *disk, q OverviewQuery) {
	if d.system {
		return // it is a part of its instance
	}
	state := d.state()
	o.DisksByStatus[state]++
	if q.Disk == "" || d.matches(state, strings.ToLower(q.Disk)) {
		o.Disks.add(q.Rows, d.overview)
	}
	for _, change := range d.pending() {
		o.Changes.add(q.Rows, func() PendingChange { return change })
	}
}

// matches tells whether a text in lower case is a part of what names or places
// a disk that is in a state.
func (d *disk) matches(state, text string) bool {
	if contains(d.id, text) || contains(d.name, text) || contains(d.zone, text) || contains(d.category, text) || contains(state, text) {
		return true
	}
	return slices.ContainsFunc(d.attachments, func(a *attachment) bool { return contains(a.instance.ID, text) })
}

// contains tells whether a text contains a part, which is in lower case, in
// any case.
func contains(text, part string) bool { return strings.Contains(strings.ToLower(text), part) }

func (d *disk) overview() DiskOverview {
	return DiskOverview{DiskState: d.export(), Locks: slices.Clone(d.locks), Pending: d.pending()}
}

// pending lists the changes of the disk that are under way.
func (d *disk) pending() []PendingChange {
	var list []PendingChange
	if d.creating {
		list = append(list, PendingChange{d.id, diskCreating, d.changes[0].cause, d.created})
	}
	if d.task != nil {
		list = append(list, PendingChange{d.id, "Modifying to " + d.task.change.to.String(), "task " + d.task.id, d.task.created})
	}
	for _, a := range d.attachments {
		switch a.phase {
		case diskAttaching:
			list = append(list, PendingChange{d.id, "Attaching to " + a.instance.ID, a.cause, a.since})
		case diskDetaching:
			list = append(list, PendingChange{d.id, "Detaching from " + a.instance.ID, a.cause, a.since})
		}
	}
	return list
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
	refused := f.Code != SuccessCode && contains(c.Code, f.Code)
	return (granted || refused) && contains(c.Action, f.Action) && contains(c.Disk, f.Disk)
}
