package snapshot

import (
	"context"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// ECS is all that snapshots need of ECS. Every error has a disk.Kind.
type ECS interface {
	Snapshots
	Groups

	// GetCached returns a disk as it has just been read, if nothing was asked of it
	// since, or reads it; NotFound if it is absent.
	GetCached(ctx context.Context, id disk.ID) (disk.Disk, error)
}

// Snapshots makes, finds and deletes snapshots.
type Snapshots interface {
	// CreateSnapshot asks for a snapshot under a client token and returns its
	// ID; no read may show it yet. NotFound: there is no such disk. Mismatch:
	// the token was used with other parameters. After any other Kind the same
	// call with the same token tells.
	CreateSnapshot(ctx context.Context, spec disk.SnapshotSpec, token disk.Token) (disk.SnapshotID, error)

	// AwaitSnapshot reads a snapshot until seen is done with it, and returns it
	// as it was seen last. NotFound: it stays out of sight. Pending: ctx leaves
	// no more time.
	AwaitSnapshot(ctx context.Context, id disk.SnapshotID, seen func(disk.Snapshot) (done bool, err error)) (disk.Snapshot, error)

	// GetSnapshot reads one snapshot; NotFound if reads don't show it.
	GetSnapshot(ctx context.Context, id disk.SnapshotID) (disk.Snapshot, error)

	// ListSnapshots returns every snapshot of the region that passes the
	// filter, whoever made it, each once and sorted by ID.
	ListSnapshots(ctx context.Context, filter disk.SnapshotFilter) ([]disk.Snapshot, error)

	// CheckSnapshotGone returns nil if a snapshot that no read shows is gone. Denied:
	// the account sees no snapshot at all, and ECS knows this one or, with
	// disk.ErrUntold, doesn't say.
	CheckSnapshotGone(ctx context.Context, id disk.SnapshotID) error

	// AskSnapshotGone asks ECS whether a snapshot is gone that no read shows: nil if it is. Pending: it is there. Denied: the credentials may not
	// ask.
	AskSnapshotGone(ctx context.Context, id disk.SnapshotID) error

	// CheckSnapshotSight returns nil if a list without snapshots may be true. Denied:
	// it hides one that this process has seen, as CheckSnapshotGone says.
	CheckSnapshotSight(ctx context.Context) error

	// PageSnapshots returns one page of the same snapshots in an order of ECS's
	// own, at most so many of 10 to 100, and the token of the next page, empty
	// after the last. BadToken: the token is none of ECS's, or no longer.
	PageSnapshots(ctx context.Context, filter disk.SnapshotFilter, token string, most int) (page []disk.Snapshot, next string, err error)

	// DeleteSnapshot removes a snapshot, in whatever state it is. Disks that
	// were made from it stay. Removal of an absent one isn't an error.
	DeleteSnapshot(ctx context.Context, id disk.SnapshotID) error
}

// Groups makes, finds and deletes groups of snapshots that are taken at the same
// moment.
type Groups interface {
	// CreateGroup asks for a group under a client token and returns its ID; no
	// read may show it yet. NotFound: one of the disks doesn't exist. Blocked:
	// the disks don't go together. Mismatch: the token was used with other
	// parameters.
	CreateGroup(ctx context.Context, spec disk.GroupSpec, token disk.Token) (disk.GroupID, error)

	// AwaitGroup is to groups what AwaitSnapshot is to snapshots.
	AwaitGroup(ctx context.Context, id disk.GroupID, seen func(disk.Group) (done bool, err error)) (disk.Group, error)

	// GetGroup reads one group with its members; NotFound if reads don't show it.
	GetGroup(ctx context.Context, id disk.GroupID) (disk.Group, error)

	// FindGroups returns every group that has all the tags, its members by
	// their IDs and sources alone. None is no error.
	FindGroups(ctx context.Context, tags disk.Tags) ([]disk.Group, error)

	// CheckGroups returns nil if the account sees any group. disk.ErrUntold: it sees none at
	// all, so that none says nothing.
	CheckGroups(ctx context.Context) error

	// AskGroupGone is to groups what AskSnapshotGone is to snapshots.
	AskGroupGone(ctx context.Context, id disk.GroupID) error

	// DeleteGroup removes a group with its members, in whatever state it is.
	// Disks that were made from them stay. Removal of an absent one isn't an
	// error.
	DeleteGroup(ctx context.Context, id disk.GroupID) error
}
