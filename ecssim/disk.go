package ecssim

import (
	"iter"
	"maps"
	"slices"
	"time"
)

// The states of a disk as DescribeDisks shows them.
const (
	diskCreating  = "Creating"
	diskAvailable = "Available"
)

// diskStates are the values that DescribeDisks takes for Status.
var diskStates = []string{"Creating", "Available", "Attaching", "In_use", "Detaching", "ReIniting", "All"}

// disk is one disk that exists.
type disk struct {
	seq             int // in the order of creation
	id              string
	zone            string // empty for a regional disk
	category        string
	level           string
	size            int // GiB
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
	availableAt     time.Time
	tags            tagSet
}

// state is the disk's Status at a time.
func (d *disk) state(now time.Time) string {
	if now.Before(d.availableAt) {
		return diskCreating
	}
	return diskAvailable
}

// serial is what the guest reads from the device.
func (d *disk) serial() string { return d.id[len("d-"):] }

// shelf holds the disks that exist.
type shelf struct {
	byID    map[string]*disk
	order   []*disk // the oldest first
	made    int
	deleted int
}

func newShelf() shelf { return shelf{byID: map[string]*disk{}} }

func (s *shelf) add(d *disk) {
	s.made++
	d.seq = s.made
	s.byID[d.id] = d
	s.order = append(s.order, d)
}

func (s *shelf) remove(d *disk) {
	s.deleted++
	delete(s.byID, d.id)
	i, _ := slices.BinarySearchFunc(s.order, d, bySeq)
	s.order = slices.Delete(s.order, i, i+1)
}

// newestFirst yields all disks, the last made first.
func (s *shelf) newestFirst() iter.Seq[*disk] {
	return func(yield func(*disk) bool) {
		for i := len(s.order) - 1; i >= 0; i-- {
			if !yield(s.order[i]) {
				return
			}
		}
	}
}

// named yields the disks of some IDs, the last made first.
func (s *shelf) named(ids []string) iter.Seq[*disk] {
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
	Created          time.Time         `json:"created"`
	Tags             map[string]string `json:"tags,omitempty"`
}

// Disks returns the disks that exist, in the order of their creation.
func (s *Server) Disks() []DiskState {
	var list []DiskState
	s.look(func(now time.Time) { list = s.diskStates(now) })
	return list
}

func (s *Server) diskStates(now time.Time) []DiskState {
	list := []DiskState{}
	for _, d := range s.disks.order {
		list = append(list, DiskState{
			ID: d.id, Zone: d.zone, Category: d.category, PerformanceLevel: d.level, Size: d.size,
			Status: d.state(now), Name: d.name, ClientToken: d.token, Encrypted: d.encrypted,
			MultiAttach: d.multiAttach, Created: d.created, Tags: maps.Clone(d.tags.current),
		})
	}
	return list
}
