package state

import (
	"slices"
	"time"
)

// Transition is a change that an action sets going and that comes of itself.
type Transition struct {
	At    time.Time
	Cause string
	Disk  string           // ID, to find it by
	Valid func() bool      // whether it can still come
	Done  func(Transition) // lets it come
	Fail  func(Transition) // puts back what was before
}

// Plan lets a transition come at its time.
func (r *Region) Plan(t Transition) {
	r.queue.add(t.At, func() { r.come(t, t.Done) })
}

// PlanFailure lets a transition fail at its time.
func (r *Region) PlanFailure(t Transition) {
	r.queue.add(t.At, func() { r.come(t, t.Fail) })
}

// KeepBack keeps a transition back until Unstick.
func (r *Region) KeepBack(t Transition) { r.stuck = append(r.stuck, t) }

// come lets a transition come in one of its two ways, if it still can.
func (r *Region) come(t Transition, way func(Transition)) {
	if t.Valid() {
		r.Touch(t.Disk)
		way(t)
	}
}

// Unstick lets the transitions of a disk come now that were kept back, and
// returns how many those are. An ID of "" stands for all disks.
func (r *Region) Unstick(disk string, now time.Time) int {
	n := 0
	r.stuck = slices.DeleteFunc(r.stuck, func(t Transition) bool {
		if disk != "" && t.Disk != disk {
			return false
		}
		n++
		t.At = now
		r.come(t, t.Done)
		return true
	})
	return n
}

// change is a change of a disk's state.
type change struct {
	from, to string
	at       time.Time
	cause    string
}

// keptChanges is how many of the last changes a disk keeps.
const keptChanges = 16

// Note writes a change of a disk's state down, if there is one.
func (r *Region) Note(d *Disk, at time.Time, cause string) {
	from := ""
	if n := len(d.changes); n > 0 {
		from = d.changes[n-1].to
	}
	to := d.State()
	r.Touch(d.ID)
	if from == to {
		return
	}
	if len(d.changes) == keptChanges {
		d.changes = slices.Delete(d.changes, 0, 1)
	}
	d.changes = append(d.changes, change{from, to, at, cause})
}

// legal are the states that may follow a state, "" being that of a disk that
// is new.
var legal = map[string][]string{
	"":            {DiskCreating},
	DiskCreating:  {DiskAvailable, DiskModifying},
	DiskAvailable: {DiskAttaching, DiskModifying},
	// One instance's attach can be another one's detach: a disk with
	// MultiAttach, or one that is moved by force.
	DiskAttaching: {DiskInUse, DiskAvailable, DiskDetaching},
	DiskInUse:     {DiskDetaching, DiskAvailable, DiskAttaching, DiskModifying},
	DiskDetaching: {DiskAvailable, DiskInUse, DiskAttaching},
	DiskModifying: {DiskAvailable, DiskInUse},
}
