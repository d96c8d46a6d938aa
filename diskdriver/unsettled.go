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
	// retriesWithin is more than csi-attacher lets pass between two calls for
	// the same volume and node.
	retriesWithin = 6 * time.Minute
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
// those that ECS may have accepted, and those of a moment ago. Other replicas of
// the driver ask ECS, too, so what this process has not settled itself since it
// was activated is taken for possible, however old the process is.
type unsettled struct {
	mu    sync.Mutex
	ties  map[tie]change
	asked map[tie]asked
	swept time.Time

	// A process is activated by the first publish or unpublish after settleTime
	// without one: until then another replica may have had them all.
	activated time.Time
	running   int       // publishes and unpublishes
	idle      time.Time // when the last of them ended
}

// asked is since when this process is asked for the same direction of a tie,
// which it has not settled, and reads show the same of it.
type asked struct {
	direction   direction
	here        bool // shown attached
	first, last time.Time
}

type change struct {
	direction direction
	at        time.Time
}

func newUnsettled() *unsettled {
	return &unsettled{ties: make(map[tie]change), asked: make(map[tie]asked)}
}

// begin notes a publish or an unpublish, and returns what notes its end.
func (u *unsettled) begin(t tie, direction direction) (end func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	if u.running == 0 && now.Sub(u.idle) >= settleTime {
		u.activated = now
	}
	u.running++
	a := u.asked[t]
	if a.direction != direction || now.Sub(a.last) > retriesWithin {
		a = asked{direction: direction, first: now}
	}
	a.last = now
	u.asked[t] = a
	u.sweep(now)
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.running--
		u.idle = time.Now()
	}
}

// saw notes what the first read of a call shows of its tie. If that has changed
// since the call before, another replica may have been at work.
func (u *unsettled) saw(t tie, here bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if a, ok := u.asked[t]; ok && a.here != here {
		a.here, a.first = here, time.Now()
		u.asked[t] = a
	}
}

// shows says whether reads show what other replicas have done to a tie, if that
// takes so long to show: this process has been the active one for as long, or
// has been asked for the tie for longer than any change lasts. Without the latter
// a call that has less time than that, and comes again rarely, would never end.
func (u *unsettled) shows(t tie, within time.Duration) bool {
	now := time.Now()
	a, ok := u.asked[t]
	return now.Sub(u.activated) >= within || ok && now.Sub(a.first) >= detachTime
}

// own is what this process has made of a tie since it was activated.
func (u *unsettled) own(t tie) (change, bool) {
	c, ok := u.ties[t]
	return c, ok && !c.at.Before(u.activated)
}

// failed remembers a call, unless its error says that it had no effect.
func (u *unsettled) failed(t tie, direction direction, err error) {
	switch disk.KindOf(err) {
	case disk.Pending, disk.UnknownOutcome, disk.Unexpected:
	default:
		return
	}
	u.doubt(t, direction)
}

// doubt remembers a call that may have had its effect.
func (u *unsettled) doubt(t tie, direction direction) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ties[t] = change{direction, time.Now()}
}

// settle takes down that a read has shown a tie to have come, or to have left.
func (u *unsettled) settle(t tie, direction direction) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ties[t] = change{direction, time.Now()}
	delete(u.asked, t)
}

// sweep forgets the changes that reads can't but show by now, and the questions
// that nobody repeats.
func (u *unsettled) sweep(now time.Time) {
	if now.Sub(u.swept) < settleTime {
		return
	}
	u.swept = now
	for t, c := range u.ties {
		if age := now.Sub(c.at); age > leavingKept || age > detachTime && c.direction != leaving {
			delete(u.ties, t)
		}
	}
	for t, a := range u.asked {
		if now.Sub(a.last) > retriesWithin {
			delete(u.asked, t)
		}
	}
}

// leaving says whether ECS may be detaching the disk of a tie, asked by this
// process. What it asked for before it was activated may be over, and the disk
// attached anew by another.
func (u *unsettled) leaving(t tie) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	c, own := u.own(t)
	return own && c.direction == leaving
}

// attached says whether this process has attached the disk of a tie, and no other can have had a hand in it since.
func (u *unsettled) attached(t tie) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	c, own := u.own(t)
	return own && c.direction == come
}

// coming says whether ECS may attach a disk to a node, or to any if it is
// empty, or have attached it, without showing it.
func (u *unsettled) coming(id disk.ID, node disk.InstanceID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	t := tie{id, node}
	if _, own := u.own(t); !own && !u.shows(t, settleTime) {
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
	u.mu.Lock()
	defer u.mu.Unlock()
	c, own := u.own(t)
	attaches := own && (c.direction == coming || c.direction == come)
	hides := unseen{
		coming:  !u.shows(t, settleTime),
		left:    !own && !u.shows(t, settleTime),
		leaving: !attaches && !u.shows(t, detachTime),
	}
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
	if _, own := u.own(tie{d.ID, node}); node != "" && !own {
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

// lately is what became of a disk's ties so short a time ago that reads may not
// show it yet.
func (u *unsettled) lately(id disk.ID) map[disk.InstanceID]direction {
	nodes := map[disk.InstanceID]direction{}
	for t, c := range u.ties {
		if t.disk == id && time.Since(c.at) < settleTime {
			nodes[t.node] = c.direction
		}
	}
	return nodes
}
