package state

import (
	"slices"
	"time"
)

// systemSize is the size of a system disk in GiB.
const systemSize = 40

// bootedBefore is how long before New the Config's instances were started.
const bootedBefore = 24 * time.Hour

// systemCategories are what a system disk can be, the preferred first.
var systemCategories = []string{"cloud_essd", "cloud_auto", "cloud_essd_entry", "cloud_ssd", "cloud_efficiency", "cloud"}

// bootDisk gives an instance its system disk, of a category that its type
// takes.
func (r *Region) bootDisk(i *Instance, at time.Time) {
	cause := "start of instance " + i.ID
	d := &Disk{
		ID: r.ids.systemDisk(), Zone: i.Zone, Category: i.Kind.systemCategory(), Size: systemSize, Largest: systemSize,
		System: true, Created: at, Creating: true, Tags: NewTagSet(map[string]string{}, time.Time{}),
	}
	if d.Category == "cloud_essd" {
		d.Level = "PL1"
	}
	r.disks.add(d)
	r.Note(d, at, cause)
	d.Creating = false
	r.Note(d, at, cause)
	a := &Attachment{
		Disk: d, Instance: i, Device: "/dev/xvda", Phase: DiskAttaching, Cause: cause, Since: at, Attached: at, DeviceAt: at, GuestSize: systemSize,
	}
	r.AddAttachment(a)
	r.Turn(a, DiskInUse, at, cause)
	d.DeleteWithInstance = true
}

// systemCategory is the category of the system disks of the type's instances.
func (t InstanceType) systemCategory() string {
	if i := slices.IndexFunc(systemCategories, t.Takes); i >= 0 {
		return systemCategories[i]
	}
	return t.Categories[0]
}

// Kind is system or data, as ECS has it.
func (d *Disk) Kind() string {
	if d.System {
		return "system"
	}
	return "data"
}

// Data returns the instance's attachments but that of its system disk.
func (i *Instance) Data() []*Attachment {
	var list []*Attachment
	for _, a := range i.Attachments {
		if !a.Disk.System {
			list = append(list, a)
		}
	}
	return list
}
