package ecssim

import "time"

// systemSize is the size of a system disk in GiB.
const systemSize = 40

// bootDisk gives an instance its system disk, if instances have any here.
func (s *Server) bootDisk(i *instance, at time.Time) {
	if !s.config.SystemDisks {
		return
	}
	cause := "start of instance " + i.ID
	d := &disk{
		id: s.ids.resource(diskPrefix), zone: i.Zone, category: "cloud_essd", level: "PL1", size: systemSize, largest: systemSize,
		system: true, created: at, creating: true, tags: tagSet{current: map[string]string{}},
	}
	if !i.kind.takes(d.category) {
		d.category, d.level = "cloud_efficiency", ""
	}
	s.disks.add(d)
	s.note(d, at, cause)
	d.creating = false
	s.note(d, at, cause)
	a := &attachment{
		disk: d, instance: i, device: "/dev/xvda", phase: diskAttaching, cause: cause, since: at, attached: at, deviceAt: at, guestSize: systemSize,
	}
	s.tie(a)
	s.turn(a, diskInUse, at, cause)
	d.deleteWithInstance = true
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
