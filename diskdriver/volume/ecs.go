package volume

import (
	"context"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/snapshot"
)

// ECS is all that volumes need of ECS. Every error has a disk.Kind.
type ECS interface {
	snapshot.Snapshots

	// Get reads one disk; NotFound if reads don't show it.
	Get(ctx context.Context, id disk.ID) (disk.Disk, error)

	// GetCached returns a disk as it has just been read, if nothing was asked of it
	// since; else it is Get. What goes by it must be checked by ECS.
	GetCached(ctx context.Context, id disk.ID) (disk.Disk, error)

	// Await reads a disk again and again until seen says that it is done, or
	// has an error, and returns the disk as it was seen last. Pending: the
	// caller's time was over before.
	Await(ctx context.Context, id disk.ID, seen func(disk.Disk) (done bool, err error)) (disk.Disk, error)

	// Create makes one attempt under a client token and returns the disk as
	// soon as a read shows that it is there.
	//
	// OutOfStock: not to be had there. Mismatch: the token was used with other
	// parameters. NotFound: ECS answered with the ID of a disk that no read
	// finds (the token outlived its disk, or reads lag). UnknownOutcome or
	// Pending: a disk may exist, or come to. After any other Kind this call has
	// made none (creation.AnswerOf).
	Create(ctx context.Context, spec disk.Spec, try disk.Attempt, token disk.Token) (disk.Disk, error)

	// Named returns every disk of this cluster that is tagged with the CSI
	// volume name. None is no error. Denied: the account sees no disk at all,
	// so that none says nothing. Without proof that is told from what it saw a
	// moment ago.
	Named(ctx context.Context, name string, proof bool) ([]disk.Disk, error)

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

	// Offers returns what the zones have to give just now, or with regional
	// what the region has for all of them.
	Offers(ctx context.Context, regional bool) (disk.Offers, error)

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

	// Tag sets tags of a disk, over others of the same keys.
	Tag(ctx context.Context, id disk.ID, tags disk.Tags) error

	// Untag removes tags from a disk. Removal of an absent tag isn't an error,
	// and without keys it does nothing.
	Untag(ctx context.Context, id disk.ID, keys []string) error
}
