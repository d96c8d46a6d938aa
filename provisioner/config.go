package provisioner

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/provisioner/claim"
	"github.com/topodisk/topodisk/provisioner/source"
)

// Config is everything that an operator may choose.
type Config struct {
	claim.Config

	Capacity            bool                   // keep CSIStorageCapacity objects
	CapacityOwner       *metav1.OwnerReference // of the objects; nil for none
	CapacityPoll        time.Duration          // how often all capacities are read
	DriverTellsCapacity bool                   // the driver's GET_CAPACITY
	DriverListsVolumes  bool                   // the driver's LIST_VOLUMES
	DriverRestores      bool                   // the driver's CREATE_DELETE_SNAPSHOT
	DriverClones        bool                   // the driver's CLONE_VOLUME
	Namespace           string                 // where this provisioner keeps objects of its own

	PodClaims             bool          // the claims of a Pod are provisioned together: its Pods without a node are watched
	CrossNamespace        bool          // claims may name sources of other namespaces, with a ReferenceGrant
	PreventModeConversion bool          // a restore keeps its snapshot's volume mode unless the snapshot allows another
	SnapshotSweep         time.Duration // how often snapshots are listed to find unneeded finalizers; 0 never

	// AwaitRenewal returns nil once the Lease was renewed after the call, and leader.ErrLost if it is lost; nil without a Lease.
	AwaitRenewal func(context.Context) error

	Self *v1.ObjectReference // the object of events about this process; nil for no events

	// OtherProvisioner is called with a PersistentVolume, and the namespace/name of its claim, that another provisioner of the driver's name has
	// saved while this process leads; nil: nobody wants to know.
	OtherProvisioner func(pv, claim string)
}

// Validate returns an error that names the first field that is missing or
// wrong, its value and what is allowed.
func (c Config) Validate() error {
	if err := c.Options.Validate(); err != nil {
		return err
	}
	switch {
	case c.Timeout <= 0:
		return fmt.Errorf("--timeout=%s; it must be positive", c.Timeout)
	case c.RetryStart <= 0:
		return fmt.Errorf("--retry-interval-start=%s; it must be positive", c.RetryStart)
	case c.RetryMax < c.RetryStart:
		return fmt.Errorf("--retry-interval-max=%s is less than --retry-interval-start=%s", c.RetryMax, c.RetryStart)
	case c.Workers < 1:
		return fmt.Errorf("--worker-threads=%d; it must be at least 1", c.Workers)
	case c.SnapshotSweep < 0:
		return fmt.Errorf("--snapshot-orphan-sweep-interval=%s; it must be positive, or 0 for never", c.SnapshotSweep)
	case c.Capacity && c.CapacityPoll <= 0:
		return fmt.Errorf("--capacity-poll-interval=%s; it must be positive", c.CapacityPoll)
	case c.Capacity && c.Namespace == "":
		return fmt.Errorf("--enable-capacity needs a namespace for its objects: the Pod's own, or --leader-election-namespace")
	}
	return nil
}

func (c Config) sourceOptions() source.Options {
	return source.Options{
		DriverName: c.DriverName, Snapshots: c.DriverRestores, Clones: c.DriverClones,
		CrossNamespace: c.CrossNamespace, PreventModeConversion: c.PreventModeConversion,
		RetryStart: c.RetryStart, RetryMax: c.RetryMax, Sweep: c.SnapshotSweep,
	}
}

// mayReschedule are the codes that an operator may add: they are final, so that no volume
// comes to exist.
var mayReschedule = []codes.Code{
	codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented, codes.Internal, codes.PermissionDenied,
}

// ParseRescheduleCodes returns the gRPC codes of the names. An error names the wrong one
// and those that are allowed.
func ParseRescheduleCodes(names []string) ([]codes.Code, error) {
	var parsed []codes.Code
	for _, name := range names {
		i := slices.IndexFunc(mayReschedule, func(c codes.Code) bool { return strings.EqualFold(c.String(), strings.TrimSpace(name)) })
		if i < 0 {
			return nil, fmt.Errorf("%q is not a final code of CreateVolume; allowed are %v", name, mayReschedule)
		}
		parsed = append(parsed, mayReschedule[i])
	}
	return parsed, nil
}
