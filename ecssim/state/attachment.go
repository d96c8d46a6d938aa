package state

import (
	"slices"
	"time"
)

// The states of a disk as DescribeDisks shows them. Modifying is not in ECS's
// documentation, but clients see it while a category is changed.
const (
	DiskCreating  = "Creating"
	DiskAvailable = "Available"
	DiskAttaching = "Attaching"
	DiskInUse     = "In_use"
	DiskDetaching = "Detaching"
	DiskModifying = "Modifying"
)

// DiskStates are the values that DescribeDisks takes for Status.
var DiskStates = []string{DiskCreating, DiskAvailable, DiskAttaching, DiskInUse, DiskDetaching, "ReIniting", "All"}

// MaxSharers is how many instances a disk with MultiAttach can be attached to.
const MaxSharers = 16

// Attachment ties a disk to an instance, from AttachDisk until the detach is
// done.
type Attachment struct {
	Disk     *Disk
	Instance *Instance
	Device   string
	Phase    string // diskAttaching, diskInUse or diskDetaching
	Cause    string // of the last change of phase
	Since    time.Time
	ShownAt  time.Time // from when reads show the phase diskAttaching
	Attached time.Time // when AttachDisk took effect
	// The guest sees the device from deviceAt, with guestSize GiB.
	DeviceAt  time.Time
	GuestSize int
}

// Live tells whether the attachment still stands.
func (a *Attachment) Live() bool { return slices.Contains(a.Disk.Attachments, a) }

// Shown is the phase as reads show it; empty if they don't yet.
func (a *Attachment) Shown(now time.Time) string {
	if a.Phase == DiskAttaching && now.Before(a.ShownAt) {
		return ""
	}
	return a.Phase
}

// AddAttachment adds an attachment that is being made.
func (r *Region) AddAttachment(a *Attachment) {
	a.Disk.Attachments = append(a.Disk.Attachments, a)
	a.Instance.Attachments = append(a.Instance.Attachments, a)
	a.Disk.EverAttached = true
	r.Note(a.Disk, a.Since, a.Cause)
}

// Turn moves an attachment to another phase.
func (r *Region) Turn(a *Attachment, phase string, at time.Time, cause string) {
	a.Phase, a.Since, a.Cause = phase, at, cause
	r.Note(a.Disk, at, cause)
}

// RemoveAttachment takes an attachment away.
func (r *Region) RemoveAttachment(a *Attachment, at time.Time, cause string) {
	is := func(other *Attachment) bool { return other == a }
	a.Disk.Attachments = slices.DeleteFunc(a.Disk.Attachments, is)
	a.Instance.Attachments = slices.DeleteFunc(a.Instance.Attachments, is)
	if len(a.Disk.Attachments) == 0 {
		a.Disk.Detached, a.Disk.DeleteWithInstance = at, false
	}
	r.Note(a.Disk, at, cause)
}

// On returns the disk's attachment to an instance, or nil.
func (d *Disk) On(i *Instance) *Attachment {
	for _, a := range d.Attachments {
		if a.Instance == i {
			return a
		}
	}
	return nil
}

// aggregate is the state of a disk by the phases of its attachments: In_use if
// one of them is.
func (d *Disk) aggregate(phaseOf func(*Attachment) string) string {
	for _, phase := range []string{DiskInUse, DiskAttaching, DiskDetaching} {
		if slices.ContainsFunc(d.Attachments, func(a *Attachment) bool { return phaseOf(a) == phase }) {
			return phase
		}
	}
	return DiskAvailable
}

// State is the disk's state as it is.
func (d *Disk) State() string {
	switch {
	case d.Creating:
		return DiskCreating
	case d.Modifying:
		return DiskModifying
	}
	return d.aggregate(func(a *Attachment) string { return a.Phase })
}

// Shown is the disk's state as DescribeDisks shows it.
func (d *Disk) Shown(now time.Time) string {
	if d.Creating || d.Modifying {
		return d.State()
	}
	return d.aggregate(func(a *Attachment) string { return a.Shown(now) })
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

// FreeDevice returns the first device name that the instance does not use.
func (i *Instance) FreeDevice() string {
	for n := 0; ; n++ {
		name := deviceName(n)
		if !slices.ContainsFunc(i.Attachments, func(a *Attachment) bool { return a.Device == name }) {
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

// Devices returns the data disks that the guest of an instance sees. A guest
// that does not run sees none. The error is a *config.Error.
func (r *Region) Devices(instance string, now time.Time) ([]Device, error) {
	i := r.Instance(instance)
	if i == nil {
		return nil, r.noInstance("instance", instance)
	}
	devices := []Device{}
	for _, a := range i.Data() {
		if i.Status == InstanceRunning && a.Phase != DiskAttaching && !now.Before(a.DeviceAt) {
			devices = append(devices, Device{a.Disk.Serial(), a.Disk.ID, a.GuestSize})
		}
	}
	return devices, nil
}

// InPhase counts the instance's disks in a phase.
func (i *Instance) InPhase(phase string) int {
	n := 0
	for _, a := range i.Attachments {
		if a.Phase == phase {
			n++
		}
	}
	return n
}
