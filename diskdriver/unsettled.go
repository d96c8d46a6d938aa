package diskdriver

import (
	"sync"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

const (
	// settleTime is for how long reads may show a disk as it was before it was
	// attached or detached.
	settleTime = 10 * time.Second
	// leavingKept is for how long a detach of unknown outcome is remembered that
	// nobody asks for any more.
	leavingKept = time.Hour
	// detachTime is the longest that ECS takes to detach a disk (about a minute,
	// says DetachDisk), twice. Nothing says that it attaches any slower.
	detachTime = 2 * time.Minute
)

// tie is a disk and the node that it is attached to, or was, or may be.
type tie struct {
	disk disk.ID
	node disk.InstanceID
}

// direction is what an attach or detach makes of a tie.
type direction int

const (
	coming  direction = iota // it may be being attached
	come                     // it is attached
	leaving                  // it may be being detached
	left                     // it is detached
)

// unsettled remembers the attaches and detaches that the next read may not show:
// those that ECS may have accepted, and those of a moment ago. A process can't
// know what the one before it asked for, so for a while it takes all of that for
// possible.
type unsettled struct {
	began time.Time // the process

	mu    sync.Mutex
	ties  map[tie]change
	swept time.Time
	made  map[tie]bool // attached by this process while it can't believe its eyes
}

type change struct {
	direction direction
	at        time.Time
}

func newUnsettled() *unsettled {
	return &unsettled{began: time.Now(), ties: make(map[tie]change), made: make(map[tie]bool)}
}

// younger says whether the process began less than so long ago.
func (u *unsettled) younger(than time.Duration) bool { return time.Since(u.began) < than }

// failed remembers a call, unless its error says that it had no effect.
func (u *unsettled) failed(t tie, direction direction, err error) {
	switch disk.KindOf(err) {
	case disk.Pending, disk.UnknownOutcome, disk.Unexpected:
	default:
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.note(t, direction)
	delete(u.made, t)
}

// note remembers a change, and forgets those that reads can't but show by now.
func (u *unsettled) note(t tie, direction direction) {
	now := time.Now()
	u.ties[t] = change{direction, now}
	if now.Sub(u.swept) < settleTime {
		return
	}
	u.swept = now
	for other, c := range u.ties {
		if age := now.Sub(c.at); age > leavingKept || age > detachTime && c.direction != leaving {
			delete(u.ties, other)
		}
	}
}

// settle takes down that a read has shown a tie to have come, or to have left.
func (u *unsettled) settle(t tie, direction direction) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.note(t, direction)
	delete(u.made, t)
	switch {
	case !u.younger(detachTime):
		clear(u.made) // reads tell all of it now
	case direction == come:
		u.made[t] = true
	}
}

// leaving says whether ECS may be detaching the disk of a tie.
func (u *unsettled) leaving(t tie) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	c, ok := u.ties[t]
	return ok && c.direction == leaving
}

// coming says whether ECS may attach a disk to a node, or to any if it is
// empty, or have attached it, without showing it.
func (u *unsettled) coming(id disk.ID, node disk.InstanceID) bool {
	if !u.known(tie{id, node}) && u.younger(settleTime) {
		return true
	}
	for other, direction := range u.lately(id) {
		if (node == "" || other == node) && (direction == coming || direction == come) {
			return true
		}
	}
	return false
}

// unseen is what ECS may be at with the disk of a tie that is to be.
func (u *unsettled) unseen(t tie) unseen {
	hides := unseen{coming: u.younger(settleTime), left: !u.known(t) && u.younger(settleTime)}
	for node, direction := range u.lately(t.disk) {
		switch here := node == t.node; {
		case direction == left && here:
			hides.left = true
		case direction == left:
			hides.parted = append(hides.parted, node)
		case direction == come && here:
			hides.come = true
		case !here:
			hides.coming = hides.coming || direction != leaving
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	hides.leaving = u.younger(detachTime) && !u.made[t]
	return hides
}

// hidden are the nodes, or the one that is named, that ECS may be attaching a
// disk to, or detaching it from, though it doesn't show it: the state of a disk
// that others have speaks for all of them together. Only ECS's answer to a detach
// tells.
func (u *unsettled) hidden(d disk.Disk, node disk.InstanceID) []disk.InstanceID {
	if !d.MultiAttach || len(d.Attachments) == 0 {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, known := u.ties[tie{d.ID, node}]; node != "" && !known && u.younger(detachTime) {
		return []disk.InstanceID{node}
	}
	var nodes []disk.InstanceID
	for t, c := range u.ties {
		if t.disk == d.ID && (c.direction == coming || c.direction == leaving) && (node == "" || t.node == node) && time.Since(c.at) < detachTime {
			nodes = append(nodes, t.node)
		}
	}
	return nodes
}

// known says whether this process has changed a tie of late.
func (u *unsettled) known(t tie) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, ok := u.ties[t]
	return ok
}

// lately is what became of a disk's ties so short a time ago that reads may not
// show it yet.
func (u *unsettled) lately(id disk.ID) map[disk.InstanceID]direction {
	u.mu.Lock()
	defer u.mu.Unlock()
	nodes := map[disk.InstanceID]direction{}
	for t, c := range u.ties {
		if t.disk == id && time.Since(c.at) < settleTime {
			nodes[t.node] = c.direction
		}
	}
	return nodes
}
