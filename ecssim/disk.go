package ecssim

import (
	"iter"
	"maps"
	"slices"
	"time"
)

// disk is one disk that exists.
type disk struct {
	seq             int // in the order of creation
	id              string
	zone            string // empty for a regional disk
	category        string
	level           string
	size            int // GiB
	largest         int // GiB that it ever had
	name            string
	description     string
	token           string
	encrypted       bool
	kmsKey          string
	multiAttach     bool
	provisionedIOPS int
	bursting        bool
	resourceGroup   string
	storageCluster  string
	created         time.Time
	tags            tagSet
	locks           []string // reasons

	source    *snapshot // that it was made from, or nil
	system    bool      // an instance's system disk
	creating  bool
	modifying bool  // its category is being changed
	task      *task // that changes its category, level or IOPS, or nil
	cooling   cooling
	modified  time.Time // when such a task ended last

	attachments        []*attachment // in the order of AttachDisk
	everAttached       bool
	home               string // ID of the instance that it was attached to last
	deleteWithInstance bool
	keepAutoSnapshot   bool      // DeleteAutoSnapshot is false
	noAutoSnapshot     bool      // EnableAutoSnapshot is false
	detached           time.Time // when it was detached last
	resized            time.Time // when its last ResizeDisk was answered
	changes            []change  // the last ones of its state
}

// serial is what the guest reads from the device.
func (d *disk) serial() string { return d.id[len("d-"):] }

// diskStore holds the disks that exist.
type diskStore struct {
	byID    map[string]*disk
	order   []*disk // the oldest first
	last    int     // seq of the youngest
	made    int     // data disks
	deleted int     // data disks
}

func newDiskStore() diskStore { return diskStore{byID: map[string]*disk{}} }

func (s *diskStore) add(d *disk) {
	s.last++
	d.seq = s.last
	if !d.system {
		s.made++
	}
	s.byID[d.id] = d
	s.order = append(s.order, d)
}

func (s *diskStore) remove(d *disk) {
	if !d.system {
		s.deleted++
	}
	delete(s.byID, d.id)
	i, _ := slices.BinarySearchFunc(s.order, d, bySeq)
	s.order = slices.Delete(s.order, i, i+1)
}

// data is how many data disks there are.
func (s *diskStore) data() int {
	n := 0
	for _, d := range s.order {
		if !d.system {
			n++
		}
	}
	return n
}

// newestFirst yields all disks, the last made first.
func (s *diskStore) newestFirst() iter.Seq[*disk] {
	return func(yield func(*disk) bool) {
		for i := len(s.order) - 1; i >= 0; i-- {
			if !yield(s.order[i]) {
				return
			}
		}
	}
}

// named yields the disks of some IDs, the last made first.
func (s *diskStore) named(ids []string) iter.Seq[*disk] {
	found := map[string]*disk{}
	for _, id := range ids {
		if d := s.byID[id]; d != nil {
			found[id] = d
		}
	}
	list := slices.SortedFunc(maps.Values(found), bySeq)
	slices.Reverse(list)
	return slices.Values(list)
}

func bySeq(a, b *disk) int { return a.seq - b.seq }

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

func (a *attachment) export() AttachmentState {
	return AttachmentState{Instance: a.instance.ID, Device: a.device, Phase: a.phase, Since: a.since, Cause: a.cause}
}

// Disks returns the data disks that exist, in the order of their creation.
func (s *Server) Disks() []DiskState {
	return seen(s, func(time.Time) []DiskState { return s.diskStates(false) })
}

// diskStates lists either the system disks or the data disks.
func (s *Server) diskStates(system bool) []DiskState {
	list := []DiskState{}
	for _, d := range s.disks.order {
		if d.system == system {
			list = append(list, d.export())
		}
	}
	return list
}

func (d *disk) export() DiskState {
	var attachments []AttachmentState
	for _, a := range d.attachments {
		attachments = append(attachments, a.export())
	}
	source := ""
	if d.source != nil {
		source = d.source.id
	}
	return DiskState{
		Source: source, ID: d.id, Zone: d.zone, Category: d.category, PerformanceLevel: d.level, Size: d.size,
		Status: d.state(), Name: d.name, ClientToken: d.token, Encrypted: d.encrypted,
		MultiAttach: d.multiAttach, Created: d.created, Tags: maps.Clone(d.tags.current), Detached: d.detached, Attachments: attachments,
	}
}
