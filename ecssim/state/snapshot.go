package state

import (
	"maps"
	"slices"
	"time"

	"github.com/topodisk/topodisk/ecssim/config"
)

// The states of a snapshot and of a snapshot group.
const (
	SnapshotProgressing  = "progressing"
	SnapshotAccomplished = "accomplished"
	SnapshotFailed       = "failed"
)

// SnapshotStates are the values that DescribeSnapshots takes for Status.
var SnapshotStates = []string{SnapshotProgressing, SnapshotAccomplished, SnapshotFailed, "all"}

// Snapshot is one snapshot that exists.
type Snapshot struct {
	Seq           int // in the order of creation
	ID            string
	Name          string
	Description   string
	DiskID        string
	Disk          *Disk // its source, deleted or not
	Size          int   // GiB of the source when it was made
	Category      string
	Encrypted     bool
	KMSKey        string
	RetentionDays int
	ResourceGroup string
	Tags          TagSet
	Group         *SnapshotGroup // that it belongs to, or nil
	auto          bool           // made by ECS itself, by a policy

	Status string
	Asked  time.Time // when the request for it took effect
	// The point in time is cut at cutAt, disks can be made of it from
	// usableAt, and it is done at doneAt. The zero time is never.
	CutAt, UsableAt, DoneAt time.Time
}

// Passed tells whether a time that may be never is over.
func Passed(t, now time.Time) bool { return !t.IsZero() && !now.Before(t) }

// Usable tells whether a disk can be made from the snapshot.
func (n *Snapshot) Usable(now time.Time) bool {
	return n.Status == SnapshotAccomplished || n.Status == SnapshotProgressing && Passed(n.UsableAt, now)
}

// Progress is how much is done, in percent, and the time that is left.
func (n *Snapshot) Progress(now time.Time) (int, time.Duration) {
	if n.Status != SnapshotProgressing {
		return 100, 0
	}
	if n.DoneAt.IsZero() || !now.Before(n.DoneAt) {
		return 0, 0
	}
	span := n.DoneAt.Sub(n.Asked)
	return int(99 * now.Sub(n.Asked) / span), n.DoneAt.Sub(now)
}

// snapshotStore holds the snapshots and the snapshot groups that exist.
type snapshotStore struct {
	byID   map[string]*Snapshot
	order  []*Snapshot // the oldest first
	groups []*SnapshotGroup
	made   int

	groupsMade int
}

func (b *snapshotStore) add(n *Snapshot) {
	b.made++
	n.Seq = b.made
	b.byID[n.ID] = n
	b.order = append(b.order, n)
}

func (b *snapshotStore) remove(n *Snapshot) {
	delete(b.byID, n.ID)
	b.order = slices.DeleteFunc(b.order, func(other *Snapshot) bool { return other == n })
	if n.Group != nil {
		n.Group.Members = slices.DeleteFunc(n.Group.Members, func(other *Snapshot) bool { return other == n })
	}
}

// AddSnapshot adds a snapshot of a disk, and gives it its ID.
func (r *Region) AddSnapshot(n *Snapshot, d *Disk) {
	n.ID, n.DiskID, n.Disk, n.Size, n.Category = r.ids.resource(SnapshotPrefix), d.ID, d, d.Size, d.Category
	n.Encrypted, n.KMSKey = d.Encrypted, d.KMSKey
	r.snapshots.add(n)
	r.TouchSnapshot(n)
}

// DeleteSnapshot deletes a snapshot.
func (r *Region) DeleteSnapshot(n *Snapshot) {
	r.TouchSnapshot(n)
	r.snapshots.remove(n)
}

// TouchSnapshot touches a snapshot and the group that shows it.
func (r *Region) TouchSnapshot(n *Snapshot) {
	r.Touch(n.ID)
	if n.Group != nil {
		r.Touch(n.Group.ID)
	}
}

// AddAutoSnapshot makes a snapshot of a disk as ECS does by itself, and returns
// its ID. It is done at once. The error is a *config.Error.
func (r *Region) AddAutoSnapshot(diskID string, now time.Time) (string, error) {
	d := r.Disk(diskID)
	if d == nil {
		return "", config.Invalid("disk", diskID, "the ID of a disk that exists")
	}
	n := &Snapshot{
		Name: "auto2.0_" + now.Format("20060102") + "_sp", auto: true, Status: SnapshotAccomplished, Asked: now, CutAt: now, UsableAt: now, DoneAt: now,
		Tags: NewTagSet(map[string]string{}, now),
	}
	r.AddSnapshot(n, d)
	return n.ID, nil
}

// Kind is what DescribeSnapshots shows as the SnapshotType.
func (n *Snapshot) Kind() string {
	if n.auto {
		return "auto"
	}
	return "user"
}

// MadeFrom counts the disks that were made from a snapshot and exist.
func (r *Region) MadeFrom(n *Snapshot) int {
	count := 0
	for _, d := range r.disks.order {
		if d.SourceID() == n.ID {
			count++
		}
	}
	return count
}

// SnapshotsOf returns how many snapshots of a disk are progressing, and how many
// it has.
func (r *Region) SnapshotsOf(d *Disk) (progressing, all int) {
	for _, n := range r.snapshots.order {
		if n.Disk != d {
			continue
		}
		all++
		if n.Status == SnapshotProgressing {
			progressing++
		}
	}
	return progressing, all
}

// SnapshotState is a snapshot as it is.
type SnapshotState struct {
	ID        string            `json:"id"`
	Disk      string            `json:"disk"`
	Size      int               `json:"size"` // GiB
	Name      string            `json:"name,omitempty"`
	Group     string            `json:"group,omitempty"`
	Status    string            `json:"status"` // progressing, accomplished or failed
	Available bool              `json:"available"`
	Asked     time.Time         `json:"asked"` // when the request for it took effect
	Tags      map[string]string `json:"tags,omitempty"`
}

// SnapshotStates lists the snapshots that exist, in the order of their creation.
func (r *Region) SnapshotStates(now time.Time) []SnapshotState {
	list := []SnapshotState{}
	for _, n := range r.snapshots.order {
		list = append(list, n.Export(now))
	}
	return list
}

// Export returns the snapshot as it is.
func (n *Snapshot) Export(now time.Time) SnapshotState {
	st := SnapshotState{
		ID: n.ID, Disk: n.DiskID, Size: n.Size, Name: n.Name, Status: n.Status, Available: n.Usable(now), Asked: n.Asked,
		Tags: maps.Clone(n.Tags.Current),
	}
	if n.Group != nil {
		st.Group = n.Group.ID
	}
	return st
}

// OfInstance tells whether the source is attached to an instance.
func (n *Snapshot) OfInstance(id string) bool {
	return slices.ContainsFunc(n.Disk.Attachments, func(a *Attachment) bool { return a.Instance.ID == id })
}

// LinkID is the ID of the chain that the snapshots of a disk form.
func (n *Snapshot) LinkID() string { return "sl-" + n.DiskID[len(diskPrefix):] }
