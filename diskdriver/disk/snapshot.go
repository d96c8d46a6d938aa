package disk

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// SnapshotID is the ID of an ECS snapshot, such as s-bp1a2b3c4d5e6f7g8h9i. It
// is the CSI snapshot ID.
type SnapshotID string

// GroupID is the ID of an ECS snapshot group, such as ssg-bp1a2b3c. It is the
// CSI group snapshot ID.
type GroupID string

// SnapshotState is a snapshot's Status as DescribeSnapshots shows it, or that
// of a snapshot group.
type SnapshotState string

// The states of snapshots and of snapshot groups.
const (
	Progressing  SnapshotState = "progressing"
	Accomplished SnapshotState = "accomplished"
	Failed       SnapshotState = "failed"
)

// Snapshot is one ECS snapshot as a read showed it.
type Snapshot struct {
	ID      SnapshotID
	Name    string // CSI snapshot name, from the tag SnapshotNameTag
	Source  ID
	Size    GiB       // of the source disk
	Created time.Time // the point in time that it holds; zero until it is taken
	State   SnapshotState
	Usable  bool    // a disk can be made from it, maybe while it is still in progress
	Group   GroupID // empty if it was made alone
	Tags    Tags
}

// ErrUntold says that ECS shows no snapshot or group at all, and doesn't say either
// whether it knows this one.
var ErrUntold = errors.New("whether it exists can't be told")

// Taken says whether the snapshot's point in time has passed: whatever is written
// to the disk from now on is not in it.
func (s Snapshot) Taken() bool { return !s.Created.IsZero() }

// Complete says whether all of the snapshot is copied: it needs its disk no more.
func (s Snapshot) Complete() bool { return s.State == Accomplished }

// Phase says how far the snapshot is, for an error message.
func (s Snapshot) Phase() string {
	switch {
	case s.ID == "":
		return "ECS doesn't show it"
	case s.State == Failed:
		return "it failed"
	case !s.Taken():
		return "its point in time is still to come"
	case !s.Usable:
		return "it is being copied"
	case !s.Complete():
		return "it can be used, and is being copied"
	}
	return "it is ready"
}

// SnapshotSpec is a snapshot as asked for.
type SnapshotSpec struct {
	Name            string // CSI snapshot name, unique in the cluster
	Source          ID
	RetentionDays   int64 // after which ECS deletes it; 0: never
	ResourceGroupID string
	Marks           Tags // by which it is found again; no other snapshot has them all
	Tags            Tags // every tag of the snapshot, the marks and the driver's own included
}

// Matches says whether an existing snapshot of the same name is the one asked
// for (CSI spec, CreateSnapshot Errors: only the volume counts).
func (s SnapshotSpec) Matches(has Snapshot) error {
	if has.Source != s.Source {
		return Errorf(Mismatch, "snapshot %s of the same name is of volume %s; asked for is %s", has.ID, has.Source, s.Source)
	}
	return nil
}

// SnapshotFilter narrows a list of snapshots; what is empty doesn't narrow.
type SnapshotFilter struct {
	IDs    []SnapshotID // at most 100; nil: any
	Source ID
	Tags   Tags
}

// Passes says whether a snapshot passes the filter.
func (f SnapshotFilter) Passes(s Snapshot) bool {
	return (f.IDs == nil || slices.Contains(f.IDs, s.ID)) && (f.Source == "" || f.Source == s.Source) && s.Tags.Have(f.Tags)
}

// Group is one ECS snapshot group as a read showed it. Its members were all
// taken at the same moment.
type Group struct {
	ID      GroupID
	Name    string // CSI group snapshot name, from the tag GroupNameTag
	Created time.Time
	State   SnapshotState
	Members []Snapshot // sorted by ID
	Tags    Tags
}

// Taken says whether every member of the group is taken.
func (g Group) Taken() bool {
	return len(g.Members) > 0 && !slices.ContainsFunc(g.Members, func(s Snapshot) bool { return !s.Taken() })
}

// Moment returns the point in time that the group holds.
func (g Group) Moment() time.Time {
	var moment time.Time
	for _, s := range g.Members {
		if s.Taken() && (moment.IsZero() || s.Created.Before(moment)) {
			moment = s.Created
		}
	}
	if moment.IsZero() {
		return g.Created
	}
	return moment
}

// GroupSpec is a group snapshot as asked for.
type GroupSpec struct {
	Name            string // CSI group snapshot name, unique in the cluster
	Sources         []ID   // sorted
	ResourceGroupID string
	Marks           Tags // by which it is found again
	Tags            Tags // every tag of the group, the marks and the driver's own included
}

// Matches says whether an existing group of the same name is the one asked for.
// A member that was deleted since is missed, for the group isn't whole.
func (s GroupSpec) Matches(has Group) error {
	var sources []ID
	for _, member := range has.Members {
		sources = append(sources, member.Source)
	}
	slices.Sort(sources)
	if !slices.Equal(sources, s.Sources) {
		return Errorf(Mismatch, "snapshot group %s of the same name is of the volumes %s; asked for are %s", has.ID, List(sources), List(s.Sources))
	}
	return nil
}

// CompareSnapshots orders snapshots by ID.
func CompareSnapshots(a, b Snapshot) int { return cmp.Compare(a.ID, b.ID) }

// LongestRetention is ECS's limit for RetentionDays (CreateSnapshot).
const LongestRetention = 65536

// ParseRetention reads the lifetime of a snapshot in days; 0 with an error, which
// says what is allowed.
func ParseRetention(value string) (int64, error) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 1 || n > LongestRetention {
		return 0, fmt.Errorf("allowed is a number of days from 1 to %d", LongestRetention)
	}
	return n, nil
}

// Temporary returns the snapshot through which a volume becomes a copy of
// another. It carries the volume's name, and goes when the copy is there.
func Temporary(volume, cluster string, source ID) SnapshotSpec {
	marks := TemporaryTags(cluster)
	marks[VolumeNameTag] = volume
	return SnapshotSpec{Name: volume, Source: source, Marks: marks, Tags: SnapshotTags(nil, marks)}
}

// TemporaryTags are what the temporary snapshots of a cluster have in common.
func TemporaryTags(cluster string) Tags {
	return Tags{ClusterTag: cluster, TemporaryTag: TemporaryForClone}
}
