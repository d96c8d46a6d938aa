package ecssim

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/topodisk/topodisk/ecssim/faults"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// How far back a stale read can look, and how many deleted things of a kind it
// can still show at most.
const (
	keptPast    = faults.MaxLag
	keptDeleted = 200
)

// earlierStates remembers how things were, so that a read can lag behind.
type earlierStates struct {
	disks     history[*disk]
	shots     history[*snapshot]
	groups    history[*snapshotGroup]
	instances history[*instance]
	tasks     history[*task]

	touched map[string]bool // IDs of what an event may have changed, of any kind
}

func newEarlierStates() earlierStates {
	return earlierStates{
		disks: newHistory[*disk](), shots: newHistory[*snapshot](), groups: newHistory[*snapshotGroup](),
		instances: newHistory[*instance](), tasks: newHistory[*task](), touched: map[string]bool{},
	}
}

// touch says that an event may change a thing, or makes or deletes it.
func (p *earlierStates) touch(id string) { p.touched[id] = true }

// touchShot touches a snapshot and the group that shows it.
func (p *earlierStates) touchShot(n *snapshot) {
	p.touch(n.id)
	if n.group != nil {
		p.touch(n.group.id)
	}
}

// touchNamed touches what a request names.
func (p *earlierStates) touchNamed(x *exchange) {
	if wire.IsRead(x.action.name) {
		return
	}
	for _, ids := range [][]string{{x.disk, x.Params["DiskId"]}, x.Params.List("DiskIds")} {
		for _, id := range ids {
			if id != "" {
				p.touch(id)
			}
		}
	}
}

// remember writes down how what was touched is after an event.
func (s *Server) remember(at time.Time) {
	if len(s.earlier.touched) > 0 {
		s.changes.count()
	}
	for id := range s.earlier.touched {
		switch {
		case strings.HasPrefix(id, groupPrefix):
			s.earlier.groups.write(id, s.snapshots.group(id), at)
		case strings.HasPrefix(id, taskPrefix):
			s.earlier.tasks.write(id, s.task(id), at)
		default:
			s.earlier.disks.write(id, s.disks.byID[id], at)
			s.earlier.shots.write(id, s.snapshots.byID[id], at)
			s.earlier.instances.write(id, s.fleet.instances[id], at)
		}
	}
	clear(s.earlier.touched)
	before := at.Add(-keptPast)
	s.earlier.disks.forget(before)
	s.earlier.shots.forget(before)
	s.earlier.groups.forget(before)
	s.earlier.instances.forget(before)
	s.earlier.tasks.forget(before)
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
	versions map[string][]version[T] // the oldest first
	gone     []grave                 // the first deleted first
}

// version is a thing as it was from a moment on; none once it is deleted.
type version[T any] struct {
	from  time.Time
	thing T
}

type grave struct {
	at time.Time
	id string
}

func newHistory[T thing[T]]() history[T] { return history[T]{versions: map[string][]version[T]{}} }

func (h *history[T]) write(id string, now T, at time.Time) {
	var none T
	list := h.versions[id]
	switch {
	case now == none && len(list) == 0:
		return // it never was, or is of another kind
	case now == none:
		h.gone = append(h.gone, grave{at, id})
	default:
		now = now.copied()
	}
	for len(list) > 1 && list[1].from.Before(at.Add(-keptPast)) {
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
	slices.SortFunc(list, func(a, b T) int { return b.number() - a.number() })
	return slices.Values(list)
}

func (d *disk) number() int          { return d.seq }
func (n *snapshot) number() int      { return n.seq }
func (g *snapshotGroup) number() int { return g.seq }
func (i *instance) number() int      { return i.seq }
func (t *task) number() int          { return t.seq }

// Copies share tags, which are replaced as a whole when they change.

func (d *disk) copied() *disk {
	c := *d
	c.attachments = wire.Each(d.attachments, func(a *attachment) *attachment {
		tie := *a
		tie.disk = &c
		return &tie
	})
	c.changes = nil // no read shows them
	return &c
}

func (n *snapshot) copied() *snapshot { c := *n; return &c }

func (g *snapshotGroup) copied() *snapshotGroup {
	c := *g
	c.members = wire.Each(g.members, (*snapshot).copied)
	return &c
}

func (i *instance) copied() *instance {
	c := *i
	c.attachments = nil // no read of instances shows them
	return &c
}

func (t *task) copied() *task { c := *t; return &c }
