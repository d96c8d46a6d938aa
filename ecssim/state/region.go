// Package state is what is true in a simulated region: disks, instances,
// snapshots and tasks, what changes of them with time, and what zones have to
// sell. It knows neither requests nor why one is refused.
package state

import (
	"maps"
	"slices"
	"time"
)

// Config is what a region is made from.
type Config struct {
	Region        string // ID
	Zones         []string
	Offers        map[string][]string // disk categories by zone, "" for the region's own; a zone that is not mentioned offers every ordinary one
	SoldOutCode   string              // one of SoldOutCodes
	Instances     []InstanceSpec
	InstanceTypes []InstanceType // besides those of the table, or instead of them
	Seed          uint32         // of the IDs
	TokenLife     time.Duration  // within which no two disks have the same ClientToken
	Past          time.Duration  // how far back reads can look
}

// Region is what is true of one account in one region: its disks, instances,
// snapshots and tasks, what its zones have to sell, and what is to happen. It is
// not for several goroutines at a time.
type Region struct {
	config    Config
	ids       idMaker
	queue     queue
	changes   changes
	earlier   earlierStates
	stock     stock
	disks     diskStore
	fleet     fleet
	tasks     []*Task // the oldest first
	tasksMade int
	snapshots snapshotStore
	stuck     []Transition // kept back until Unstick
	deleted   func(disk string)
}

// New returns a region whose Config was checked. Its instances have been there for long.
// deleted is called with the ID of each disk that is deleted.
func New(c Config, now time.Time, deleted func(disk string)) *Region {
	r := &Region{
		config:    c,
		ids:       newIDMaker(c.Region, c.Seed),
		earlier:   newEarlierStates(c.Past),
		stock:     newStock(c),
		disks:     diskStore{byID: map[string]*Disk{}},
		fleet:     newFleet(c),
		snapshots: snapshotStore{byID: map[string]*Snapshot{}},
		deleted:   deleted,
	}
	r.queue.after = r.Remember
	for _, i := range r.fleet.inOrder() {
		r.Touch(i.ID)
		r.bootDisk(i, now.Add(-bootedBefore))
	}
	r.Remember(now)
	return r
}

// Run does what is due by now.
func (r *Region) Run(now time.Time) { r.queue.run(now) }

// Schedule lets something happen at a time.
func (r *Region) Schedule(at time.Time, do func()) { r.queue.add(at, do) }

// Touch says that an event may change a thing, or makes or deletes it.
func (r *Region) Touch(id string) { r.earlier.touched[id] = true }

// Code opens the IDs of the region's resources, behind their prefix.
func (r *Region) Code() string { return r.ids.code }

// RequestID returns the ID of another request.
func (r *Region) RequestID() string { return r.ids.request() }

// Disk returns a disk, nil if it does not exist.
func (r *Region) Disk(id string) *Disk { return r.disks.byID[id] }

// Instance returns an instance, nil if it does not exist.
func (r *Region) Instance(id string) *Instance { return r.fleet.instances[id] }

// Snapshot returns a snapshot, nil if it does not exist.
func (r *Region) Snapshot(id string) *Snapshot { return r.snapshots.byID[id] }

// InstanceTypes returns the types that instances can have, sorted by ID.
func (r *Region) InstanceTypes() []InstanceType {
	var list []InstanceType
	for _, id := range slices.Sorted(maps.Keys(r.fleet.types)) {
		list = append(list, r.fleet.types[id])
	}
	return list
}

// InstanceType returns a type, and whether it is known.
func (r *Region) InstanceType(id string) (InstanceType, bool) {
	t, is := r.fleet.types[id]
	return t, is
}

// AddInstanceType adds a type, or changes the figures of one for instances that
// are added from then on. The error is a *config.Error.
func (r *Region) AddInstanceType(t InstanceType) error {
	if err := t.check(); err != nil {
		return err
	}
	r.fleet.types[t.ID] = t
	return nil
}

// DisksMade returns how many data disks were made, and how many of them were
// deleted.
func (r *Region) DisksMade() (made, deleted int) { return r.disks.made, r.disks.deleted }

// StuckChanges is how many changes are kept back.
func (r *Region) StuckChanges() int { return len(r.stuck) }
