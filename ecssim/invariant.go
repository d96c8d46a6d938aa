package ecssim

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Check returns what is wrong with the state, joined, or nil: what must hold
// in any ECS, and what a driver's test must not have broken. Two disks under
// one ClientToken, a disk where none can be, a disk attached twice, a state
// that nothing led to, a count that does not add up.
func (s *Server) Check() error {
	return seen(s, func(time.Time) error { return s.broken() })
}

func (s *Server) broken() error {
	var wrong []error
	first := map[string]*disk{} // by token
	for _, d := range s.disks.order {
		if other := first[d.token]; other != nil && d.created.Sub(other.created) < s.config.TokenLife {
			wrong = append(wrong, fmt.Errorf("disks %s and %s were made under one client token %q", other.id, d.id, d.token))
		}
		if d.token != "" {
			first[d.token] = d
		}
		spec := categories[d.category]
		if spec.regional != (d.zone == "") || d.zone != "" && !slices.Contains(s.config.Zones, d.zone) {
			wrong = append(wrong, fmt.Errorf("disk %s of category %s is in zone %q", d.id, d.category, d.zone))
		}
		if d.size < spec.min || d.size > spec.max {
			wrong = append(wrong, fmt.Errorf("disk %s of category %s has %d GiB", d.id, d.category, d.size))
		}
		if len(d.tags.current) > maxTags {
			wrong = append(wrong, fmt.Errorf("disk %s has %d tags", d.id, len(d.tags.current)))
		}
		if d.source != nil && d.size < d.source.size {
			wrong = append(wrong, fmt.Errorf("disk %s has %d GiB, and the snapshot %s that it was made from %d", d.id, d.size, d.source.id, d.source.size))
		}
		if d.size < d.largest {
			wrong = append(wrong, fmt.Errorf("disk %s has %d GiB, and had %d", d.id, d.size, d.largest))
		}
		wrong = append(wrong, s.brokenAttachments(d), brokenChanges(d))
	}
	for _, i := range s.fleet.instances {
		wrong = append(wrong, s.brokenInstance(i))
	}
	if left := s.disks.data(); s.disks.made-s.disks.deleted != left {
		wrong = append(wrong, fmt.Errorf("%d disks made and %d deleted leave %d", s.disks.made, s.disks.deleted, left))
	}
	return errors.Join(wrong...)
}

// brokenAttachments returns what is wrong with what a disk is attached to.
func (s *Server) brokenAttachments(d *disk) error {
	var wrong []error
	if n := len(d.attachments); n > 1 && !d.multiAttach || n > maxSharers {
		wrong = append(wrong, fmt.Errorf("disk %s is attached to %d instances", d.id, n))
	}
	for n, a := range d.attachments {
		i := a.instance
		switch {
		case s.fleet.instances[i.ID] != i:
			wrong = append(wrong, fmt.Errorf("disk %s is attached to the instance %s, which is gone", d.id, i.ID))
		case !slices.Contains(i.attachments, a):
			wrong = append(wrong, fmt.Errorf("disk %s is attached to the instance %s, which does not know", d.id, i.ID))
		case d.zone != "" && d.zone != i.Zone:
			wrong = append(wrong, fmt.Errorf("disk %s in %s is attached to the instance %s in %s", d.id, d.zone, i.ID, i.Zone))
		case slices.ContainsFunc(d.attachments[:n], func(other *attachment) bool { return other.instance == i }):
			wrong = append(wrong, fmt.Errorf("disk %s is attached to the instance %s twice", d.id, i.ID))
		}
	}
	return errors.Join(wrong...)
}

// brokenInstance returns what is wrong with what is attached to an instance.
func (s *Server) brokenInstance(i *instance) error {
	var wrong []error
	if n := len(i.data()) + 1; n > i.kind.DiskQuantity {
		wrong = append(wrong, fmt.Errorf("instance %s has %d disks and room for %d", i.ID, n, i.kind.DiskQuantity))
	}
	for n, a := range i.attachments {
		switch {
		case s.disks.byID[a.disk.id] != a.disk:
			wrong = append(wrong, fmt.Errorf("disk %s was deleted while it was attached to the instance %s", a.disk.id, i.ID))
		case !a.live():
			wrong = append(wrong, fmt.Errorf("instance %s has the disk %s, which does not know", i.ID, a.disk.id))
		case slices.ContainsFunc(i.attachments[:n], func(other *attachment) bool { return other.device == a.device }):
			wrong = append(wrong, fmt.Errorf("instance %s has two disks at %s", i.ID, a.device))
		}
	}
	return errors.Join(wrong...)
}

// brokenChanges returns what is wrong with how a disk came to its state: each
// change must have had a cause and be one that can be, and the last must have
// led to the present state.
func brokenChanges(d *disk) error {
	var wrong []error
	last := ""
	for n, c := range d.changes {
		if c.cause == "" || n > 0 && c.from != last || !slices.Contains(legal[c.from], c.to) {
			wrong = append(wrong, fmt.Errorf("disk %s went from %q to %q by %q after it was %q", d.id, c.from, c.to, c.cause, last))
		}
		last = c.to
	}
	if last != d.state() {
		wrong = append(wrong, fmt.Errorf("disk %s is %q, and nothing has led there from %q", d.id, d.state(), last))
	}
	return errors.Join(wrong...)
}
