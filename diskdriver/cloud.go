package diskdriver

import (
	"context"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// ECS is all that the driver asks of ECS, role by role. Every error has a
// disk.Kind.
type ECS interface {
	Disks
	Cloud
}

// Disks makes, finds and deletes disks.
type Disks interface {
	// Create makes one attempt under a client token and returns the disk as
	// soon as a read shows that it is there.
	//
	// OutOfStock: not to be had there, and nothing was made. Mismatch: the
	// token was used with other parameters. NotFound: ECS answered with the ID
	// of a disk that no read finds (the token outlived its disk, or reads
	// lag). After any other Kind a disk may exist.
	Create(ctx context.Context, spec disk.Spec, try disk.Attempt, token disk.Token) (disk.Disk, error)

	// Get reads one disk; NotFound if it is absent.
	Get(ctx context.Context, id disk.ID) (disk.Disk, error)

	// Named returns every disk of this cluster that is tagged with the CSI
	// volume name. None is no error.
	Named(ctx context.Context, name string) ([]disk.Disk, error)

	// List returns every data disk of the region, whoever made it, each once
	// and sorted by ID.
	List(ctx context.Context) ([]disk.Disk, error)

	// Delete removes a disk. Removal of an absent disk isn't an error.
	// Pending: ECS has not finished with the disk yet. InUse: something holds
	// it, or its state forbids it.
	Delete(ctx context.Context, id disk.ID) error
}

// Cloud says whether ECS can be worked with at all.
type Cloud interface {
	// Check makes one cheap call that needs a valid credential; nil if ECS
	// answered it.
	Check(ctx context.Context) error
}
