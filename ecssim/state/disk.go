package state

import (
	"maps"
	"slices"
	"time"

	"github.com/topodisk/topodisk/ecssim/config"
)

// Disk is one disk that exists.
type Disk struct {
	Seq             int // in the order of creation
	ID              string
	Zone            string // empty for a regional disk
	Category        string
	Level           string
	Size            int // GiB
	Largest         int // GiB that it ever had
	Name            string
	Description     string
	Token           string
	Encrypted       bool
	KMSKey          string
	MultiAttach     bool
	ProvisionedIOPS int
	Bursting        bool
	ResourceGroup   string
	StorageCluster  string
	Created         time.Time
	Tags            TagSet
	Locks           []string // reasons

	Source    *Snapshot // that it was made from, or nil
	System    bool      // an instance's system disk
	Creating  bool
	Modifying bool  // its category is being changed
	Task      *Task // that changes its category, level or IOPS, or nil
	Cooling   Cooling
	Modified  time.Time // when such a task ended last

	Attachments        []*Attachment // in the order of AttachDisk
	EverAttached       bool
	Home               string // ID of the instance that it was attached to last
	DeleteWithInstance bool
	KeepAutoSnapshot   bool      // DeleteAutoSnapshot is false
	NoAutoSnapshot     bool      // EnableAutoSnapshot is false
	Detached           time.Time // when it was detached last
	Resized            time.Time // when its last ResizeDisk was answered
	changes            []change  // the last ones of its state
}

// Serial is what the guest reads from the device.
func (d *Disk) Serial() string { return d.ID[len("d-"):] }

// Kind is system or data, as ECS has it.
func (d *Disk) Kind() string {
	if d.System {
		return "system"
	}
	return "data"
}

// diskStore holds the disks that exist.
type diskStore struct {
	byID    map[string]*Disk
	order   []*Disk // the oldest first
	last    int     // seq of the youngest
	made    int     // data disks
	deleted int     // data disks
}

func (s *diskStore) add(d *Disk) {
	s.last++
	d.Seq = s.last
	if !d.System {
		s.made++
	}
	s.byID[d.ID] = d
	s.order = append(s.order, d)
}

func (s *diskStore) remove(d *Disk) {
	if !d.System {
		s.deleted++
	}
	delete(s.byID, d.ID)
	i, _ := slices.BinarySearchFunc(s.order, d, bySeq)
	s.order = slices.Delete(s.order, i, i+1)
}

// AddDisk adds a disk that is being made, and gives it its ID.
func (r *Region) AddDisk(d *Disk, cause string) {
	d.ID = r.ids.resource(diskPrefix)
	r.disks.add(d)
	r.Note(d, d.Created, cause)
}

// DeleteDisk deletes a disk, and its automatic snapshots unless it keeps them.
func (r *Region) DeleteDisk(d *Disk) {
	r.disks.remove(d)
	r.deleted(d.ID)
	if d.KeepAutoSnapshot {
		return
	}
	for _, n := range slices.Clone(r.snapshots.order) {
		if n.Disk == d && n.auto {
			r.DeleteSnapshot(n)
		}
	}
}

// data is how many data disks there are.
func (s *diskStore) data() int {
	n := 0
	for _, d := range s.order {
		if !d.System {
			n++
		}
	}
	return n
}

func bySeq(a, b *Disk) int { return a.Seq - b.Seq }

// DiskState is a disk as it is, however much of it reads show already.
type DiskState struct {
	ID               string            `json:"id"`
	Zone             string            `json:"zone"` // empty for a regional disk
	Category         string            `json:"category"`
	PerformanceLevel string            `json:"performanceLevel,omitempty"`
	Size             int               `json:"size"` // GiB
	Status           string            `json:"status"`
	Name             string            `json:"name,omitempty"`
	ClientToken      string            `json:"clientToken,omitempty"`
	Encrypted        bool              `json:"encrypted,omitempty"`
	MultiAttach      bool              `json:"multiAttach,omitempty"`
	Source           string            `json:"source,omitempty"` // ID of the snapshot that it was made from
	Created          time.Time         `json:"created"`
	Tags             map[string]string `json:"tags,omitempty"`
	Detached         time.Time         `json:"detached,omitzero"` // when it was detached last
	// Attachments has an entry for each instance that the disk is attached
	// to, being attached to, or being detached from.
	Attachments []AttachmentState `json:"attachments,omitempty"`
}

// AttachmentState is a disk's bond to an instance as it is, however much of
// it reads show already.
type AttachmentState struct {
	Instance string    `json:"instance"`
	Device   string    `json:"device"`
	Phase    string    `json:"phase"` // Attaching, In_use or Detaching
	Since    time.Time `json:"since"` // of the phase
	Cause    string    `json:"cause"` // of the phase: an action and its request ID
}

func (a *Attachment) export() AttachmentState {
	return AttachmentState{Instance: a.Instance.ID, Device: a.Device, Phase: a.Phase, Since: a.Since, Cause: a.Cause}
}

// DiskStates lists either the system disks or the data disks.
func (r *Region) DiskStates(system bool) []DiskState {
	list := []DiskState{}
	for _, d := range r.disks.order {
		if d.System == system {
			list = append(list, d.export())
		}
	}
	return list
}

func (d *Disk) export() DiskState {
	var attachments []AttachmentState
	for _, a := range d.Attachments {
		attachments = append(attachments, a.export())
	}
	source := ""
	if d.Source != nil {
		source = d.Source.ID
	}
	return DiskState{
		Source: source, ID: d.ID, Zone: d.Zone, Category: d.Category, PerformanceLevel: d.Level, Size: d.Size,
		Status: d.State(), Name: d.Name, ClientToken: d.Token, Encrypted: d.Encrypted,
		MultiAttach: d.MultiAttach, Created: d.Created, Tags: maps.Clone(d.Tags.Current), Detached: d.Detached, Attachments: attachments,
	}
}

// LockReasons are the reasons for which ECS locks a disk, as DescribeDisks shows
// them in OperationLocks.
var LockReasons = []string{"financial", "security", "recycling", "dedicatedhostfinancial"}

// LockDisk locks a disk for some reasons; none unlocks it. The error is a
// *config.Error.
func (r *Region) LockDisk(id string, reasons []string) error {
	for _, reason := range reasons {
		if !slices.Contains(LockReasons, reason) {
			return config.Invalid("reasons", reason, "some of "+config.List(LockReasons))
		}
	}
	d := r.Disk(id)
	if d == nil {
		return config.Invalid("disk", id, "the ID of a disk that exists")
	}
	r.Touch(id)
	d.Locks = slices.Clone(reasons)
	return nil
}

// SourceID is the ID of the snapshot that the disk was made from, or empty.
func (d *Disk) SourceID() string {
	if d.Source == nil {
		return ""
	}
	return d.Source.ID
}
