package ecssim

import (
	"slices"
	"time"

	"github.com/topodisk/topodisk/ecssim/faults"
)

// transition is a change that an action sets going and that comes of itself.
type transition struct {
	at    time.Time
	cause string
	disk  string           // ID, to find it by
	valid func() bool      // whether it can still come
	done  func(transition) // lets it come
	fail  func(transition) // puts back what was before
}

// plan lets a transition come at its time. The fault of the call may let it
// fail then, or keep it back until Unstick.
func (s *Server) plan(x *exchange, t transition) {
	t.cause = x.cause()
	x.ends = t.at
	end := t.done
	switch x.fault.Do {
	case faults.Stuck:
		s.stuck = append(s.stuck, t)
		return
	case faults.Fails:
		end = t.fail
	}
	s.queue.add(t.at, func() { s.come(t, end) })
}

// come lets a transition come in one of its two ways, if it still can.
func (s *Server) come(t transition, way func(transition)) {
	if t.valid() {
		s.earlier.touch(t.disk)
		way(t)
	}
}

// Unstick lets the transitions of a disk come now that FaultStuck has kept
// back, and returns how many those are. An ID of "" stands for all disks.
func (s *Server) Unstick(disk string) int {
	n := 0
	s.look(func(now time.Time) {
		s.stuck = slices.DeleteFunc(s.stuck, func(t transition) bool {
			if disk != "" && t.disk != disk {
				return false
			}
			n++
			t.at = now
			s.come(t, t.done)
			return true
		})
	})
	return n
}

// repliesAt is when the reply to a request goes out, unless a fault delays it.
func (s *Server) repliesAt(x *exchange) time.Time {
	return x.at.Add(x.takes)
}

// cause names the request as what made a change.
func (x *exchange) cause() string { return x.action.name + " " + x.requestID }

// change is a change of a disk's state.
type change struct {
	from, to string
	at       time.Time
	cause    string
}

// keptChanges is how many of the last changes a disk keeps.
const keptChanges = 16

// note writes a change of a disk's state down, if there is one.
func (s *Server) note(d *disk, at time.Time, cause string) {
	from := ""
	if n := len(d.changes); n > 0 {
		from = d.changes[n-1].to
	}
	to := d.state()
	s.earlier.touch(d.id)
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
	"":            {diskCreating},
	diskCreating:  {diskAvailable, diskModifying},
	diskAvailable: {diskAttaching, diskModifying},
	// One instance's attach can be another one's detach: a disk with
	// MultiAttach, or one that is moved by force.
	diskAttaching: {diskInUse, diskAvailable, diskDetaching},
	diskInUse:     {diskDetaching, diskAvailable, diskAttaching, diskModifying},
	diskDetaching: {diskAvailable, diskInUse, diskAttaching},
	diskModifying: {diskAvailable, diskInUse},
}
