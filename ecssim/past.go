package ecssim

import (
	"iter"
	"slices"
	"time"
)

// keptPast is how far back a stale read can look.
const keptPast = 2 * time.Minute

// past remembers how disks were, so that a read can lag behind.
type past struct {
	versions map[string][]version // by disk, the oldest first
	touched  map[string]bool      // disks that an event may have changed
	gone     []grave              // the first deleted first
}

// version is a disk as it was from a moment on; nil once it is deleted.
type version struct {
	from time.Time
	disk *disk
}

type grave struct {
	at time.Time
	id string
}

func newPast() past { return past{versions: map[string][]version{}, touched: map[string]bool{}} }

// touch says that an event may change a disk.
func (p *past) touch(id string) { p.touched[id] = true }

// touchNamed touches the disks that a request names.
func (p *past) touchNamed(x *exchange) {
	if x.action.isRead() {
		return
	}
	for _, ids := range [][]string{{x.disk, x.params["DiskId"]}, x.params.list("DiskIds"), x.params.list("ResourceId")} {
		for _, id := range ids {
			if id != "" {
				p.touch(id)
			}
		}
	}
}

// remember writes down how the touched disks are after an event.
func (s *Server) remember(at time.Time) {
	for id := range s.past.touched {
		s.past.write(id, s.disks.byID[id], at)
	}
	clear(s.past.touched)
	s.past.forget(at.Add(-keptPast))
}

func (p *past) write(id string, d *disk, at time.Time) {
	list := p.versions[id]
	switch {
	case d == nil && len(list) == 0:
		return // it never was
	case d == nil:
		p.gone = append(p.gone, grave{at, id})
	default:
		d = d.copied()
	}
	for len(list) > 1 && list[1].from.Before(at.Add(-keptPast)) {
		list = list[1:]
	}
	if n := len(list); n > 0 && list[n-1].from.Equal(at) {
		list = list[:n-1]
	}
	p.versions[id] = append(slices.Clip(list), version{at, d})
}

// forget drops what nobody can see any more of deleted disks.
func (p *past) forget(before time.Time) {
	for len(p.gone) > 0 && p.gone[0].at.Before(before) {
		delete(p.versions, p.gone[0].id)
		p.gone = p.gone[1:]
	}
}

// at returns a disk as it was; nil if it was not there.
func (p *past) at(id string, t time.Time) *disk {
	list := p.versions[id]
	for i := len(list) - 1; i >= 0; i-- {
		if !list[i].from.After(t) {
			return list[i].disk
		}
	}
	return nil
}

// disksAt yields the disks as they were, the last made first: those of some
// IDs, or all.
func (p *past) disksAt(ids []string, all bool, t time.Time) iter.Seq[*disk] {
	if all {
		ids = nil
		for id := range p.versions {
			ids = append(ids, id)
		}
	}
	seen := map[string]bool{}
	var list []*disk
	for _, id := range ids {
		if d := p.at(id, t); d != nil && !seen[id] {
			seen[id] = true
			list = append(list, d)
		}
	}
	slices.SortFunc(list, func(a, b *disk) int { return bySeq(b, a) })
	return slices.Values(list)
}

// copied returns a copy that later changes of the disk don't reach. Tags are
// replaced as a whole when they change.
func (d *disk) copied() *disk {
	c := *d
	c.attachments = nil
	for _, a := range d.attachments {
		tie := *a
		tie.disk = &c
		c.attachments = append(c.attachments, &tie)
	}
	c.changes = slices.Clone(d.changes)
	return &c
}
