package state

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"time"
)

// keptDeleted is how many deleted things of a kind can still be seen at most.
const keptDeleted = 200

// earlierStates remembers how things were, so that a read can lag behind.
type earlierStates struct {
	disks     history[*Disk]
	snapshots history[*Snapshot]
	groups    history[*SnapshotGroup]
	instances history[*Instance]
	tasks     history[*Task]

	past    time.Duration   // how far back a read can look
	touched map[string]bool // IDs of what an event may have changed, of any kind
}

func newEarlierStates(past time.Duration) earlierStates {
	return earlierStates{
		disks: newHistory[*Disk](past), snapshots: newHistory[*Snapshot](past), groups: newHistory[*SnapshotGroup](past),
		instances: newHistory[*Instance](past), tasks: newHistory[*Task](past), past: past, touched: map[string]bool{},
	}
}

// Remember writes down how what was touched is after an event.
func (r *Region) Remember(at time.Time) {
	if len(r.earlier.touched) > 0 {
		r.changes.count()
	}
	for id := range r.earlier.touched {
		switch {
		case strings.HasPrefix(id, groupPrefix):
			r.earlier.groups.write(id, r.Group(id), at)
		case strings.HasPrefix(id, taskPrefix):
			r.earlier.tasks.write(id, r.task(id), at)
		default:
			r.earlier.disks.write(id, r.Disk(id), at)
			r.earlier.snapshots.write(id, r.Snapshot(id), at)
			r.earlier.instances.write(id, r.Instance(id), at)
		}
	}
	clear(r.earlier.touched)
	before := at.Add(-r.earlier.past)
	r.earlier.disks.forget(before)
	r.earlier.snapshots.forget(before)
	r.earlier.groups.forget(before)
	r.earlier.instances.forget(before)
	r.earlier.tasks.forget(before)
}

// thing is what a history remembers; the zero value is none.
type thing[T any] interface {
	comparable
	// copied returns a copy that later changes of the thing don't reach.
	copied() T
	// number is the thing's place in the order of creation.
	number() int
}

// history is how things of one kind were, by ID.
type history[T thing[T]] struct {
	past     time.Duration
	versions map[string][]version[T] // the oldest first
	gone     []deletion              // the first deleted first
}

// version is a thing as it was from a moment on; none once it is deleted.
type version[T any] struct {
	from  time.Time
	thing T
}

type deletion struct {
	at time.Time
	id string
}

func newHistory[T thing[T]](past time.Duration) history[T] {
	return history[T]{past: past, versions: map[string][]version[T]{}}
}

func (h *history[T]) write(id string, now T, at time.Time) {
	var none T
	list := h.versions[id]
	switch {
	case now == none && len(list) == 0:
		return // it never was, or is of another kind
	case now == none:
		h.gone = append(h.gone, deletion{at, id})
	default:
		now = now.copied()
	}
	for len(list) > 1 && list[1].from.Before(at.Add(-h.past)) {
		list = list[1:]
	}
	if n := len(list); n > 0 && list[n-1].from.Equal(at) {
		list = list[:n-1]
	}
	h.versions[id] = append(slices.Clip(list), version[T]{at, now})
}

// forget drops what nobody can see any more of deleted things.
func (h *history[T]) forget(before time.Time) {
	for len(h.gone) > 0 && (h.gone[0].at.Before(before) || len(h.gone) > keptDeleted) {
		delete(h.versions, h.gone[0].id)
		h.gone = slices.Delete(h.gone, 0, 1)
	}
}

// at returns a thing as it was; none if it was not there.
func (h *history[T]) at(id string, t time.Time) T {
	list := h.versions[id]
	for i := len(list) - 1; i >= 0; i-- {
		if !list[i].from.After(t) {
			return list[i].thing
		}
	}
	var none T
	return none
}

// newestFirst yields things as they were, the last made first: those of some
// IDs, or all.
func (h *history[T]) newestFirst(ids []string, all bool, t time.Time) iter.Seq[T] {
	if all {
		ids = slices.Collect(maps.Keys(h.versions))
	}
	var none T
	seen := map[string]bool{}
	var list []T
	for _, id := range ids {
		if was := h.at(id, t); was != none && !seen[id] {
			seen[id] = true
			list = append(list, was)
		}
	}
	slices.SortFunc(list, lastMadeFirst)
	return slices.Values(list)
}

func (d *Disk) number() int          { return d.Seq }
func (n *Snapshot) number() int      { return n.Seq }
func (g *SnapshotGroup) number() int { return g.Seq }
func (i *Instance) number() int      { return i.Seq }
func (t *Task) number() int          { return t.Seq }

// Copies share tags, which are replaced as a whole when they change.

func (d *Disk) copied() *Disk {
	c := *d
	c.Attachments = make([]*Attachment, len(d.Attachments))
	for n, a := range d.Attachments {
		attachment := *a
		attachment.Disk = &c
		c.Attachments[n] = &attachment
	}
	c.changes = nil // no read shows them
	return &c
}

func (n *Snapshot) copied() *Snapshot { c := *n; return &c }

func (g *SnapshotGroup) copied() *SnapshotGroup {
	c := *g
	c.Members = make([]*Snapshot, len(g.Members))
	for i, n := range g.Members {
		c.Members[i] = n.copied()
	}
	return &c
}

func (i *Instance) copied() *Instance {
	c := *i
	c.Attachments = nil // no read of instances shows them
	return &c
}

func (t *Task) copied() *Task { c := *t; return &c }
