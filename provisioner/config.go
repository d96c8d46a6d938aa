package provisioner

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PVNameSource says where the name of a PersistentVolume comes from.
type PVNameSource string

const (
	// VolumeID names a PersistentVolume after the disk's ID.
	VolumeID PVNameSource = "volume-id"
	// VolumeName names a PersistentVolume after its CSI volume name, <prefix>-<claim UID>.
	VolumeName PVNameSource = "volume-name"
)

// Config is everything that an operator may choose.
type Config struct {
	DriverName       string        // the CSI driver whose claims are provisioned
	Identity         string        // this process, in the PersistentVolume's attributes
	VolumeNamePrefix string        // CSI volume name = <prefix>-<claim UID>
	VolumeNameUUID   int           // characters of the UID kept in the name; -1 keeps it as it is
	PVNameSource     PVNameSource  // what a PersistentVolume is named after
	Timeout          time.Duration // of one call to the driver
	RetryStart       time.Duration // first wait after a failure; doubles with each one
	RetryMax         time.Duration // longest wait between two attempts
	Workers          int           // claims, and volumes, worked on at the same time

	SupportsTopology  bool // the driver's VOLUME_ACCESSIBILITY_CONSTRAINTS, unless switched off
	StrictTopology    bool // a selected node's own topology is the only one asked for
	ImmediateTopology bool // Immediate claims without allowedTopologies are told all zones

	ExtraCreateMetadata bool          // the claim's name and namespace go into the parameters
	DefaultFSType       string        // for classes that name none
	ExtraLabelPrefix    string        // labels of the selected node that go into its topology
	NodeGrace           time.Duration // how long a selected node may be without the driver

	CapacityThreads      int                    // capacities asked for at the same time
	Capacity             bool                   // keep CSIStorageCapacity objects
	CapacityOwner        *metav1.OwnerReference // of the objects; nil for none
	CapacityPoll         time.Duration          // how often the driver is asked for all of them
	CapacityForImmediate bool                   // also for classes that bind at once
	DriverTellsCapacity  bool                   // the driver's GET_CAPACITY
	DriverListsVolumes   bool                   // the driver's LIST_VOLUMES
	DriverTellsWriters   bool                   // the driver's SINGLE_NODE_MULTI_WRITER
	DriverRestores       bool                   // the driver's CREATE_DELETE_SNAPSHOT
	DriverClones         bool                   // the driver's CLONE_VOLUME
	DriverModifies       bool                   // the driver's MODIFY_VOLUME
	Namespace            string                 // where this provisioner keeps objects of its own

	AttributesClasses     bool          // claims may name a VolumeAttributesClass
	CrossNamespace        bool          // claims may name sources of other namespaces, with a ReferenceGrant
	PreventModeConversion bool          // a restore keeps its snapshot's volume mode unless the snapshot allows another
	RescheduleCodes       []codes.Code  // of CreateVolume, besides ResourceExhausted: the selected node can't have the volume
	SourceThreads         int           // sources let go at the same time
	SnapshotSweep         time.Duration // how often snapshots are looked for that keep a finalizer for nobody; 0 never
	ClaimAnnotations      []string      // annotations of claims that are passed to the driver
	ClaimLabelTags        []string      // labels of claims that become tags of their disks
	NamespaceLabelTags    []string      // labels of namespaces that become tags of their claims' disks
	ReadOnlyPublish       bool          // volumes of claims that are ReadOnlyMany alone are published for reading

	Self *v1.ObjectReference // what events about this process are about; nil for nothing
}

var notInObjectName = regexp.MustCompile(`[^a-zA-Z0-9-]`)

// ObjectName makes a name for objects out of a driver's, as csi-provisioner
// makes that of its Lease.
func ObjectName(driver string) string {
	name := notInObjectName.ReplaceAllString(driver, "-")
	if name[len(name)-1] == '-' {
		name += "X"
	}
	return name
}

// Validate returns an error that names the first field that is missing or
// wrong, its value and what is allowed.
func (c Config) Validate() error {
	switch {
	case c.DriverName == "":
		return fmt.Errorf("the driver's name is missing")
	case c.VolumeNamePrefix == "":
		return fmt.Errorf("--volume-name-prefix is empty; it must be a DNS label such as disk")
	case c.VolumeNamePrefix != strings.ToLower(c.VolumeNamePrefix):
		return fmt.Errorf("--volume-name-prefix=%s has upper-case letters; it becomes part of object names, which have none", c.VolumeNamePrefix)
	case c.VolumeNameUUID < -1 || c.VolumeNameUUID == 0 || c.VolumeNameUUID > 32:
		return fmt.Errorf("--volume-name-uuid-length=%d; allowed are 1 to 32, or -1 for the whole UID", c.VolumeNameUUID)
	case c.PVNameSource != VolumeID && c.PVNameSource != VolumeName:
		return fmt.Errorf("--pv-name-source=%s; allowed are %s and %s", c.PVNameSource, VolumeID, VolumeName)
	case c.Timeout <= 0:
		return fmt.Errorf("--timeout=%s; it must be positive", c.Timeout)
	case c.RetryStart <= 0:
		return fmt.Errorf("--retry-interval-start=%s; it must be positive", c.RetryStart)
	case c.RetryMax < c.RetryStart:
		return fmt.Errorf("--retry-interval-max=%s is less than --retry-interval-start=%s", c.RetryMax, c.RetryStart)
	case c.Workers < 1:
		return fmt.Errorf("--worker-threads=%d; it must be at least 1", c.Workers)
	case c.SourceThreads < 1:
		return fmt.Errorf("--cloning-protection-threads=%d; it must be at least 1", c.SourceThreads)
	case c.SnapshotSweep < 0:
		return fmt.Errorf("--snapshot-orphan-sweep-interval=%s; it must be positive, or 0 for never", c.SnapshotSweep)
	case c.Capacity && c.CapacityThreads < 1:
		return fmt.Errorf("--capacity-threads=%d; it must be at least 1", c.CapacityThreads)
	case c.Capacity && c.CapacityPoll <= 0:
		return fmt.Errorf("--capacity-poll-interval=%s; it must be positive", c.CapacityPoll)
	case c.Capacity && c.Namespace == "":
		return fmt.Errorf("--enable-capacity needs a namespace for its objects: the Pod's own, or --leader-election-namespace")
	}
	if err := checkLabelTags("claim-label-tags", c.ClaimLabelTags); err != nil {
		return err
	}
	return checkLabelTags("namespace-label-tags", c.NamespaceLabelTags)
}

// mayReschedule are the codes that an operator may have claims rescheduled for:
// final ones, after which no volume is in the making.
var mayReschedule = []codes.Code{
	codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented, codes.Internal, codes.PermissionDenied,
}

// ParseRescheduleCodes returns the gRPC codes of those names. An error says
// which name is wrong and which are allowed.
func ParseRescheduleCodes(names []string) ([]codes.Code, error) {
	var parsed []codes.Code
	for _, name := range names {
		i := slices.IndexFunc(mayReschedule, func(c codes.Code) bool { return strings.EqualFold(c.String(), strings.TrimSpace(name)) })
		if i < 0 {
			return nil, fmt.Errorf("%q is not a code after which nothing is in the making; allowed are %v", name, mayReschedule)
		}
		parsed = append(parsed, mayReschedule[i])
	}
	return parsed, nil
}
