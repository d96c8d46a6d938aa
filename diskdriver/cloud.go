package diskdriver

import (
	"context"

	"github.com/topodisk/topodisk/diskdriver/attachment"
	"github.com/topodisk/topodisk/diskdriver/disk"
)

// ECS is all that the driver asks of ECS, role by role. Every error has a
// disk.Kind.
type ECS interface {
	Disks
	attachment.Instances
	attachment.Tags
	Stock
	Snapshots
	Groups
	Changes
	Cloud
}

// Disks makes, finds and deletes disks.
type Disks interface {
	attachment.Reader

	// Create makes one attempt under a client token and returns the disk as
	// soon as a read shows that it is there.
	//
	// OutOfStock: not to be had there, and nothing was made. Mismatch: the
	// token was used with other parameters. NotFound: ECS answered with the ID
	// of a disk that no read finds (the token outlived its disk, or reads
	// lag). After any other Kind a disk may exist.
	Create(ctx context.Context, spec disk.Spec, try disk.Attempt, token disk.Token) (disk.Disk, error)

	// Named returns every disk of this cluster that is tagged with the CSI
	// volume name. None is no error. Denied: the account sees no disk at all,
	// so that none says nothing.
	Named(ctx context.Context, name string) ([]disk.Disk, error)

	// List returns every data disk of the region, whoever made it, each once
	// and sorted by ID.
	List(ctx context.Context) ([]disk.Disk, error)

	// Resize makes a disk, as it was read, at least so large, and returns it with its new size.
	// A disk that is large enough is success. Pending: an earlier order for
	// the disk, or another change, is under way. OutOfRange: its category has
	// no such size.
	Resize(ctx context.Context, d disk.Disk, size disk.GiB) (disk.Disk, error)

	// Delete removes a disk. Removal of an absent disk isn't an error.
	// Pending: ECS has not finished with the disk yet. InUse: something holds
	// it, or its state forbids it.
	Delete(ctx context.Context, id disk.ID) error
}

// Stock says what disks there are to be had.
type Stock interface {
	// Offers returns what the zones have to give just now, or with regional
	// what the region has for all of them.
	Offers(ctx context.Context, regional bool) (disk.Offers, error)
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

	// GetSnapshot reads one snapshot; NotFound if it is absent.
	GetSnapshot(ctx context.Context, id disk.SnapshotID) (disk.Snapshot, error)

	// ListSnapshots returns every snapshot of the region that passes the
	// filter, whoever made it, each once and sorted by ID.
	ListSnapshots(ctx context.Context, filter disk.SnapshotFilter) ([]disk.Snapshot, error)

	// PageSnapshots returns one page of the same snapshots in an order of ECS's
	// own, at most so many of 10 to 100, and the token of the next page, empty
	// after the last. BadToken: the token is none of ECS's, or no longer.
	PageSnapshots(ctx context.Context, filter disk.SnapshotFilter, token string, most int) (page []disk.Snapshot, next string, err error)

	// DeleteSnapshot removes a snapshot, in whatever state it is. Disks that
	// were made from it stay. Removal of an absent one isn't an error.
	DeleteSnapshot(ctx context.Context, id disk.SnapshotID) error
}

// Groups makes, finds and deletes groups of snapshots that are cut at the same
// moment.
type Groups interface {
	// CreateGroup asks for a group under a client token and returns its ID; no
	// read may show it yet. NotFound: one of the disks doesn't exist. Blocked:
	// the disks don't go together. Mismatch: the token was used with other
	// parameters.
	CreateGroup(ctx context.Context, spec disk.GroupSpec, token disk.Token) (disk.GroupID, error)

	// AwaitGroup is to groups what AwaitSnapshot is to snapshots.
	AwaitGroup(ctx context.Context, id disk.GroupID, seen func(disk.Group) (done bool, err error)) (disk.Group, error)

	// GetGroup reads one group with its members; NotFound if it is absent.
	GetGroup(ctx context.Context, id disk.GroupID) (disk.Group, error)

	// FindGroups returns every group that has all the tags, its members by
	// their IDs and sources alone. None is no error.
	FindGroups(ctx context.Context, tags disk.Tags) ([]disk.Group, error)

	// DeleteGroup removes a group with its members, in whatever state it is.
	// Disks that were made from them stay. Removal of an absent one isn't an
	// error.
	DeleteGroup(ctx context.Context, id disk.GroupID) error
}

// Changes changes disks in place.
type Changes interface {
	// TryMove says whether a move would work, and changes nothing. Invalid: it
	// never will. Blocked: it may later. Pending: ECS is busy with the disk.
	TryMove(ctx context.Context, id disk.ID, m disk.Move) error

	// Move starts a move and returns the task to wait for; empty if there is
	// none, for the disk is there already.
	Move(ctx context.Context, id disk.ID, m disk.Move) (disk.TaskID, error)

	// RunningMove returns the task that is moving a disk; empty if none is.
	RunningMove(ctx context.Context, id disk.ID) (disk.TaskID, error)

	// AwaitTask waits until a task of a disk is over. Unexpected: it failed.
	// Pending: ctx leaves no more time.
	AwaitTask(ctx context.Context, id disk.ID, task disk.TaskID) error

	// Burst switches a disk's bursting on or off.
	Burst(ctx context.Context, id disk.ID, on bool) error
}

// Cloud says whether ECS can be worked with at all.
type Cloud interface {
	// Check makes one cheap call that needs a valid credential; nil if ECS
	// answered it.
	Check(ctx context.Context) error
}

// Nodes knows instances without asking ECS.
type Nodes interface {
	// Instance returns what is known of an instance, and false if that is
	// nothing.
	Instance(id disk.InstanceID) (disk.Instance, bool)
}
