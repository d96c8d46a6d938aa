package disk

import (
	"regexp"
	"slices"
)

// InstanceType is a type of ECS instances, such as ecs.g7.large.
type InstanceType string

// Instance is what is known of an ECS instance. A field with its zero value
// isn't known.
type Instance struct {
	Type InstanceType
	Zone Zone
	// DataDisks is how many disks it can have besides its system disk.
	DataDisks int
	// Takes are the categories that it can attach.
	Takes []Category
	// Refuses are the categories that its zone has for other types, and not
	// for this one. A category that the zone has for nobody any more is in
	// neither list: disks of it may be there still.
	Refuses []Category
}

// Attachable returns an error if the disk is known not to go with the
// instance, and nil if it may. The Kinds are those of the same refusals by ECS
// (AttachDisk: ResourcesNotInSameZone, InvalidInstanceType.NotSupportDiskCategory).
func (i Instance) Attachable(d Disk) error {
	switch {
	case d.Zone != "" && i.Zone != "" && d.Zone != i.Zone:
		return Errorf(Invalid, "the disk is in zone %s and the instance in %s; a disk can be attached in its own zone only", d.Zone, i.Zone)
	case slices.Contains(i.Refuses, d.Category) && !slices.Contains(i.Takes, d.Category):
		return Errorf(Blocked, "instances of type %s can't attach disks of type %s; they take %s", i.Type, d.Category, List(i.Takes))
	}
	return nil
}

// InstanceLabel names a node's instance where the cloud provider's controller
// doesn't run, which fills in spec.providerID.
const InstanceLabel = "alibabacloud.com/ecs-instance-id"

var (
	instanceForm   = regexp.MustCompile(`^i-[A-Za-z0-9]+$`)
	providerIDForm = regexp.MustCompile(`^(?:alicloud://)?([a-z0-9-]+)[./](i-[A-Za-z0-9]+)$`)
)

// InstanceOfNode returns the ECS instance that a Node with this spec.providerID
// and InstanceLabel stands for, and its region if the Node says so; empty if it
// stands for none. A provider ID is <region>.<instance>, perhaps with
// alicloud:// before it; the label counts only without one.
func InstanceOfNode(providerID, label string) (id InstanceID, region string) {
	if m := providerIDForm.FindStringSubmatch(providerID); m != nil {
		return InstanceID(m[2]), m[1]
	}
	if providerID == "" && instanceForm.MatchString(label) {
		return InstanceID(label), ""
	}
	return "", ""
}

// Node is what a node plugin says of itself to Kubernetes.
type Node struct {
	ID       InstanceID
	Segments map[string]string // the node's topology: labels and their values
	// MaxVolumes is how many disks of the driver the node can have at a time,
	// at least 1.
	MaxVolumes int64
}
