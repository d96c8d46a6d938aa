package diskdriver

import (
	"sync"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

const (
	// settleTime is for how long reads may not show that ECS attaches a disk.
	settleTime = 10 * time.Second
	// leavingKept is for how long a detach of unknown outcome is remembered that
	// nobody asks for any more.
	leavingKept = time.Hour
)

// tie is a disk and the node that it is attached to, or was, or may be.
type tie struct {
	disk disk.ID
	node disk.InstanceID
}

// direction is what an attach or detach of unknown outcome makes of a tie.
type direction int

const (
	coming direction = iota
	leaving
)

// unsettled remembers the attaches and detaches that ECS may have accepted and
// that no read has shown yet. Another process begins without: by the time that
// it is asked, reads don't lag any more.
type unsettled struct {
	mu   sync.Mutex
	ties map[tie]change
}

type change struct {
	direction direction
	at        time.Time
}

func newUnsettled() *unsettled { return &unsettled{ties: make(map[tie]change)} }

// failed remembers a call, unless its error says that it had no effect.
func (u *unsettled) failed(t tie, direction direction, err error) {
	switch disk.KindOf(err) {
	case disk.Pending, disk.UnknownOutcome, disk.Unexpected:
	default:
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	for other, c := range u.ties {
		if now.Sub(c.at) > leavingKept {
			delete(u.ties, other)
		}
	}
	u.ties[t] = change{direction, now}
}

// settle forgets a tie, which a read has shown to be as it should.
func (u *unsettled) settle(t tie) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.ties, t)
}

// leaving says whether ECS may be detaching the disk of a tie.
func (u *unsettled) leaving(t tie) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	c, ok := u.ties[t]
	return ok && c.direction == leaving
}

// coming says whether ECS may be attaching a disk to a node, or to any if it
// is empty, without showing it.
func (u *unsettled) coming(id disk.ID, node disk.InstanceID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for t, c := range u.ties {
		if t.disk == id && (node == "" || t.node == node) && c.direction == coming && time.Since(c.at) < settleTime {
			return true
		}
	}
	return false
}
