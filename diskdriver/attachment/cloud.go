package attachment

import (
	"context"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// Reader reads disks. Every error of this file's interfaces has a disk.Kind.
type Reader interface {
	// Get reads one disk; NotFound if reads don't show it.
	Get(ctx context.Context, id disk.ID) (disk.Disk, error)

	// GetCached returns a disk as it has just been read, if nothing was asked of it
	// since; else it is Get. What goes by it must be checked by ECS.
	GetCached(ctx context.Context, id disk.ID) (disk.Disk, error)

	// Await reads a disk again and again until seen says that it is done, or
	// has an error, and returns the disk as it was seen last. Pending: the
	// caller's time was over before.
	Await(ctx context.Context, id disk.ID, seen func(disk.Disk) (done bool, err error)) (disk.Disk, error)

	// TryMove asks ECS whether a disk could be changed, and changes nothing. NotFound: there is no such disk.
	TryMove(ctx context.Context, id disk.ID, m disk.Move) error
}

// Instances attaches disks to instances.
type Instances interface {
	// Attach asks ECS to attach a disk, reads it until one shows what has come of that, and returns it as it was seen last, with ECS's
	// reply. If ECS is at work on the same call, it isn't made again. With force a regional disk is taken from an instance of another zone.
	//
	// Pending: ECS is at work on it, or others are first; the same call later
	// ends it. InUse: another instance has it. NodeFull: the instance takes no more. NotFound: there is no such
	// disk or instance. UnknownOutcome: ECS may or may not attach it.
	Attach(ctx context.Context, instance disk.InstanceID, id disk.ID, force bool) (disk.Disk, disk.Reply, error)

	// Detach asks ECS to detach a disk, and else is Attach. NotFound is ECS's answer to the call. After the answer that no instance
	// has the disk, or that there is no such instance, it isn't read, and nothing but its ID is returned.
	Detach(ctx context.Context, instance disk.InstanceID, id disk.ID) (disk.Disk, disk.Reply, error)
}

// Tags changes the tags of disks.
type Tags interface {
	// Tag sets tags of a disk, over others of the same keys. Without tags it does nothing.
	Tag(ctx context.Context, id disk.ID, tags disk.Tags) error

	// Untag removes tags from a disk. Removal of an absent tag isn't an error,
	// and without keys it does nothing.
	Untag(ctx context.Context, id disk.ID, keys []string) error
}

// ECS is all that attachments need of ECS.
type ECS interface {
	Reader
	Instances
	Tags
}
