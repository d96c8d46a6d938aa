package ecssim

import (
	"slices"
	"time"

	"github.com/topodisk/topodisk/ecssim/wire"
)

// The states of a disk as DescribeDisks shows them. Modifying is not in ECS's
// documentation, but clients see it while a category is changed.
const (
	diskCreating  = "Creating"
	diskAvailable = "Available"
	diskAttaching = "Attaching"
	diskInUse     = "In_use"
	diskDetaching = "Detaching"
	diskModifying = "Modifying"
)

// diskStates are the values that DescribeDisks takes for Status.
var diskStates = []string{diskCreating, diskAvailable, diskAttaching, diskInUse, diskDetaching, "ReIniting", "All"}

// attachment ties a disk to an instance, from AttachDisk until the detach is
// done.
type attachment struct {
	disk     *disk
	instance *instance
	device   string
	phase    string // diskAttaching, diskInUse or diskDetaching
	cause    string // of the last change of phase
	since    time.Time
	shownAt  time.Time // from when reads show the phase diskAttaching
	attached time.Time // when AttachDisk took effect
	// The guest sees the device from deviceAt, with guestSize GiB.
	deviceAt  time.Time
	guestSize int
}

// live tells whether the attachment still stands.
func (a *attachment) live() bool { return slices.Contains(a.disk.attachments, a) }

// shown is the phase as reads show it; empty if they don't yet.
func (a *attachment) shown(now time.Time) string {
	if a.phase == diskAttaching && now.Before(a.shownAt) {
		return ""
	}
	return a.phase
}

// addAttachment adds an attachment that is being made.
func (s *Server) addAttachment(a *attachment) {
	a.disk.attachments = append(a.disk.attachments, a)
	a.instance.attachments = append(a.instance.attachments, a)
	a.disk.everAttached = true
	s.note(a.disk, a.since, a.cause)
}

// turn moves an attachment to another phase.
func (s *Server) turn(a *attachment, phase string, at time.Time, cause string) {
	a.phase, a.since, a.cause = phase, at, cause
	s.note(a.disk, at, cause)
}

// removeAttachment takes an attachment away.
func (s *Server) removeAttachment(a *attachment, at time.Time, cause string) {
	is := func(other *attachment) bool { return other == a }
	a.disk.attachments = slices.DeleteFunc(a.disk.attachments, is)
	a.instance.attachments = slices.DeleteFunc(a.instance.attachments, is)
	if len(a.disk.attachments) == 0 {
		a.disk.detached, a.disk.deleteWithInstance = at, false
	}
	s.note(a.disk, at, cause)
}

// on returns the disk's attachment to an instance, or nil.
func (d *disk) on(i *instance) *attachment {
	for _, a := range d.attachments {
		if a.instance == i {
			return a
		}
	}
	return nil
}

// aggregate is the state of a disk whose attachments are in some phases: In_use
// if one of them is.
func aggregate(phases []string) string {
	for _, phase := range []string{diskInUse, diskAttaching, diskDetaching} {
		if slices.Contains(phases, phase) {
			return phase
		}
	}
	return diskAvailable
}

// state is the disk's state as it is.
func (d *disk) state() string {
	switch {
	case d.creating:
		return diskCreating
	case d.modifying:
		return diskModifying
	}
	return aggregate(wire.Each(d.attachments, func(a *attachment) string { return a.phase }))
}

// shown is the disk's state as DescribeDisks shows it.
func (d *disk) shown(now time.Time) string {
	if d.creating || d.modifying {
		return d.state()
	}
	return aggregate(wire.Each(d.attachments, func(a *attachment) string { return a.shown(now) }))
}

// deviceName returns the name of an instance's n-th data disk, from 0: the
// system disk is /dev/xvda.
func deviceName(n int) string {
	name := ""
	for n++; n >= 0; n = n/26 - 1 {
		name = string(rune('a'+n%26)) + name
	}
	return "/dev/xvd" + name
}

// freeDevice returns the first device name that the instance does not use.
func (i *instance) freeDevice() string {
	for n := 0; ; n++ {
		name := deviceName(n)
		if !slices.ContainsFunc(i.attachments, func(a *attachment) bool { return a.device == name }) {
			return name
		}
	}
}

// Device is a data disk as the guest of an instance sees it.
type Device struct {
	Serial string `json:"serial"` // the disk's ID without its d-
	Disk   string `json:"disk"`
	Size   int    `json:"size"` // GiB; a disk that was resized offline keeps its old size here
}

// Devices returns the data disks that the guest of an instance sees, which
// lags behind DescribeDisks by Latency.DeviceVisible. A guest that does not
// run sees none.
func (s *Server) Devices(instance string) ([]Device, error) {
	devices := []Device{}
	var err error
	s.look(func(now time.Time) {
		i := s.fleet.instances[instance]
		if i == nil {
			err = s.noInstance("instance", instance)
			return
		}
		for _, a := range i.data() {
			if i.Status == instanceRunning && a.phase != diskAttaching && !now.Before(a.deviceAt) {
				devices = append(devices, Device{a.disk.serial(), a.disk.id, a.guestSize})
			}
		}
	})
	return devices, err
}
