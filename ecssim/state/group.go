package state

import (
	"slices"
	"time"
)

// SnapshotGroup is the snapshots of several disks at one point in time.
type SnapshotGroup struct {
	Seq               int // in the order of creation
	ID                string
	Name, Description string
	Instance          string
	ResourceGroup     string
	Created           time.Time
	Tags              TagSet
	Members           []*Snapshot // those that exist
}

// Status is progressing while a member is, failed if one has failed.
func (g *SnapshotGroup) Status() string {
	has := func(status string) bool {
		return slices.ContainsFunc(g.Members, func(n *Snapshot) bool { return n.Status == status })
	}
	switch {
	case has(SnapshotProgressing):
		return SnapshotProgressing
	case has(SnapshotFailed):
		return SnapshotFailed
	}
	return SnapshotAccomplished
}

// AddGroup adds a group without members, and gives it its ID.
func (r *Region) AddGroup(g *SnapshotGroup) {
	r.snapshots.groupsMade++
	g.ID, g.Seq = r.ids.resource(groupPrefix), r.snapshots.groupsMade
	r.snapshots.groups = append(r.snapshots.groups, g)
}

// DeleteGroup deletes a group, not its members.
func (r *Region) DeleteGroup(g *SnapshotGroup) {
	r.Touch(g.ID)
	r.snapshots.groups = slices.DeleteFunc(r.snapshots.groups, func(other *SnapshotGroup) bool { return other == g })
}

// Group returns a snapshot group, nil if it does not exist.
func (r *Region) Group(id string) *SnapshotGroup {
	for _, g := range r.snapshots.groups {
		if g.ID == id {
			return g
		}
	}
	return nil
}
