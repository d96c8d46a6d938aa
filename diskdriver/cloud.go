package diskdriver

import (
	"context"

	"github.com/topodisk/topodisk/diskdriver/attachment"
	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/snapshot"
	"github.com/topodisk/topodisk/diskdriver/volume"
)

// ECS is all that the driver asks of ECS, role by role. Every error has a
// disk.Kind.
type ECS interface {
	volume.ECS
	attachment.ECS
	snapshot.ECS
	Cloud
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

	// Region returns the region that an instance is in, empty if that is not
	// known.
	Region(id disk.InstanceID) string
}
