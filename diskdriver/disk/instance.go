package disk

import (
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
