package state

import (
	"slices"
	"strings"
	"time"
)

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

// Matches tells whether a text in lower case is a part of what names or places
// a disk that is in a state.
func (d *Disk) Matches(state, text string) bool {
	if contains(d.ID, text) || contains(d.Name, text) || contains(d.Zone, text) || contains(d.Category, text) || contains(state, text) {
		return true
	}
	return slices.ContainsFunc(d.Attachments, func(a *Attachment) bool { return contains(a.Instance.ID, text) })
}

// Overview returns the disk and what is about to change of it.
func (d *Disk) Overview() DiskOverview {
	return DiskOverview{DiskState: d.export(), Locks: slices.Clone(d.Locks), Pending: d.Pending()}
}

// Pending lists the changes of the disk that are under way.
func (d *Disk) Pending() []PendingChange {
	var list []PendingChange
	if d.Creating {
		list = append(list, PendingChange{d.ID, DiskCreating, d.changes[0].cause, d.Created})
	}
	if d.Task != nil {
		list = append(list, PendingChange{d.ID, "Modifying to " + d.Task.Change.To.String(), "task " + d.Task.ID, d.Task.Created})
	}
	for _, a := range d.Attachments {
		switch a.Phase {
		case DiskAttaching:
			list = append(list, PendingChange{d.ID, "Attaching to " + a.Instance.ID, a.Cause, a.Since})
		case DiskDetaching:
			list = append(list, PendingChange{d.ID, "Detaching from " + a.Instance.ID, a.Cause, a.Since})
		}
	}
	return list
}

// contains tells whether a text contains a part, which is in lower case, in
// any case.
func contains(text, part string) bool { return strings.Contains(strings.ToLower(text), part) }
