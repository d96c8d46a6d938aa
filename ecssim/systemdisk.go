package ecssim

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
func (s *Server) bootDisk(i *instance, at time.Time) {
	cause := "start of instance " + i.ID
	d := &disk{
		id: s.ids.systemDisk(), zone: i.Zone, category: i.kind.systemCategory(), size: systemSize, largest: systemSize,
		system: true, created: at, creating: true, tags: newTagSet(map[string]string{}, time.Time{}),
	}
	if d.category == "cloud_essd" {
		d.level = "PL1"
	}
	s.disks.add(d)
	s.note(d, at, cause)
	d.creating = false
	s.note(d, at, cause)
	a := &attachment{
		disk: d, instance: i, device: "/dev/xvda", phase: diskAttaching, cause: cause, since: at, attached: at, deviceAt: at, guestSize: systemSize,
	}
	s.addAttachment(a)
	s.turn(a, diskInUse, at, cause)
	d.deleteWithInstance = true
}

// systemCategory is the category of the system disks of the type's instances.
func (t InstanceType) systemCategory() string {
	if i := slices.IndexFunc(systemCategories, t.takes); i >= 0 {
		return systemCategories[i]
	}
	return t.Categories[0]
}

// kind is system or data, as ECS has it.
func (d *disk) kind() string {
	if d.system {
		return "system"
	}
	return "data"
}

// data returns the instance's attachments but that of its system disk.
func (i *instance) data() []*attachment {
	var list []*attachment
	for _, a := range i.attachments {
		if !a.disk.system {
			list = append(list, a)
		}
	}
	return list
}
