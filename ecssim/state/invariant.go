package state

import (
	"errors"
	"fmt"
	"slices"
)

// Check returns what is wrong with the state, joined, or nil.
func (r *Region) Check() error {
	var wrong []error
	first := map[string]*Disk{} // by token
	for _, d := range r.disks.order {
		if other := first[d.Token]; other != nil && d.Created.Sub(other.Created) < r.config.TokenLife {
			wrong = append(wrong, fmt.Errorf("disks %s and %s were made under one client token %q", other.ID, d.ID, d.Token))
		}
		if d.Token != "" {
			first[d.Token] = d
		}
		spec := Categories[d.Category]
		if spec.Regional != (d.Zone == "") || d.Zone != "" && !slices.Contains(r.config.Zones, d.Zone) {
			wrong = append(wrong, fmt.Errorf("disk %s of category %s is in zone %q", d.ID, d.Category, d.Zone))
		}
		if d.Size < spec.Min || d.Size > spec.Max {
			wrong = append(wrong, fmt.Errorf("disk %s of category %s has %d GiB", d.ID, d.Category, d.Size))
		}
		if len(d.Tags.Current) > MaxTags {
			wrong = append(wrong, fmt.Errorf("disk %s has %d tags", d.ID, len(d.Tags.Current)))
		}
		if d.Source != nil && d.Size < d.Source.Size {
			wrong = append(wrong, fmt.Errorf("disk %s has %d GiB, and the snapshot %s that it was made from %d", d.ID, d.Size, d.Source.ID, d.Source.Size))
		}
		if d.Size < d.Largest {
			wrong = append(wrong, fmt.Errorf("disk %s has %d GiB, and had %d", d.ID, d.Size, d.Largest))
		}
		wrong = append(wrong, r.brokenAttachments(d), brokenChanges(d))
	}
	for _, i := range r.fleet.instances {
		wrong = append(wrong, r.brokenInstance(i))
	}
	if left := r.disks.data(); r.disks.made-r.disks.deleted != left {
		wrong = append(wrong, fmt.Errorf("%d disks made and %d deleted leave %d", r.disks.made, r.disks.deleted, left))
	}
	return errors.Join(wrong...)
}

// brokenAttachments returns what is wrong with what a disk is attached to.
func (r *Region) brokenAttachments(d *Disk) error {
	var wrong []error
	if n := len(d.Attachments); n > 1 && !d.MultiAttach || n > MaxSharers {
		wrong = append(wrong, fmt.Errorf("disk %s is attached to %d instances", d.ID, n))
	}
	for n, a := range d.Attachments {
		i := a.Instance
		switch {
		case r.fleet.instances[i.ID] != i:
			wrong = append(wrong, fmt.Errorf("disk %s is attached to the instance %s, which is gone", d.ID, i.ID))
		case !slices.Contains(i.Attachments, a):
			wrong = append(wrong, fmt.Errorf("disk %s is attached to the instance %s, which does not know", d.ID, i.ID))
		case d.Zone != "" && d.Zone != i.Zone:
			wrong = append(wrong, fmt.Errorf("disk %s in %s is attached to the instance %s in %s", d.ID, d.Zone, i.ID, i.Zone))
		case slices.ContainsFunc(d.Attachments[:n], func(other *Attachment) bool { return other.Instance == i }):
			wrong = append(wrong, fmt.Errorf("disk %s is attached to the instance %s twice", d.ID, i.ID))
		}
	}
	return errors.Join(wrong...)
}

// brokenInstance returns what is wrong with what is attached to an instance.
func (r *Region) brokenInstance(i *Instance) error {
	var wrong []error
	if n := len(i.Data()) + 1; n > i.Kind.DiskQuantity {
		wrong = append(wrong, fmt.Errorf("instance %s has %d disks and room for %d", i.ID, n, i.Kind.DiskQuantity))
	}
	for n, a := range i.Attachments {
		switch {
		case r.disks.byID[a.Disk.ID] != a.Disk:
			wrong = append(wrong, fmt.Errorf("disk %s was deleted while it was attached to the instance %s", a.Disk.ID, i.ID))
		case !a.Live():
			wrong = append(wrong, fmt.Errorf("instance %s has the disk %s, which does not know", i.ID, a.Disk.ID))
		case slices.ContainsFunc(i.Attachments[:n], func(other *Attachment) bool { return other.Device == a.Device }):
			wrong = append(wrong, fmt.Errorf("instance %s has two disks at %s", i.ID, a.Device))
		}
	}
	return errors.Join(wrong...)
}

// brokenChanges returns what is wrong with how a disk came to its state: each
// change must have had a cause and be one that can be, and the last must have
// led to the present state.
func brokenChanges(d *Disk) error {
	var wrong []error
	last := ""
	for n, c := range d.changes {
		if c.cause == "" || n > 0 && c.from != last || !slices.Contains(legal[c.from], c.to) {
			wrong = append(wrong, fmt.Errorf("disk %s went from %q to %q by %q after it was %q", d.ID, c.from, c.to, c.cause, last))
		}
		last = c.to
	}
	if last != d.State() {
		wrong = append(wrong, fmt.Errorf("disk %s is %q, and nothing has led there from %q", d.ID, d.State(), last))
	}
	return errors.Join(wrong...)
}
