package ecs

import (
	"sync"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

const (
	// knownKept is for how long what is known of a disk is kept that nothing happens to.
	knownKept = time.Minute
	// wholeKept is for how long all that a look showed is kept.
	wholeKept = 2 * time.Second
)

// known is what this process has just learned of disks: the last look at each, and the change that it has begun. Both are hints
// of a moment: a read, or ECS's answer to the next call, has the last word.
type known struct {
	mu    sync.Mutex
	disks map[disk.ID]*knowledge
	swept time.Time
	whole []wholeLook // the oldest first
}

type knowledge struct {
	underWay wait                // the zero wait if nothing is
	look     *glimpse[disk.Disk] // the last one; nil if it is too old to be fresh
	changed  time.Time           // when the last call that changes the disk ended
	at       time.Time
}

// wholeLook is a look that is kept, and what keeps it.
type wholeLook struct {
	of   *knowledge
	look *glimpse[disk.Disk]
}

func newKnown() *known { return &known{disks: make(map[disk.ID]*knowledge)} }

// of returns what is known of a disk, to be read or written with the lock held.
func (k *known) of(id disk.ID) *knowledge {
	now := time.Now()
	if now.Sub(k.swept) > knownKept {
		for other, what := range k.disks {
			if now.Sub(what.at) > knownKept {
				delete(k.disks, other)
			}
		}
		k.swept = now
	}
	what := k.disks[id]
	if what == nil {
		what = &knowledge{}
		k.disks[id] = what
	}
	what.at = now
	return what
}

// begun notes a change of a disk.
func (k *known) begun(w wait) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.of(w.id).underWay = w
}

// over forgets the change of a disk.
func (k *known) over(id disk.ID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.of(id).underWay = wait{}
}

// underWay returns the change of a disk that is under way, or a wait of which nothing is known.
func (k *known) underWay(id disk.ID) wait {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.of(id).underWay
	w.id = id
	return w
}

// changed notes that a call has ended that changes the disk, whatever became of it.
func (k *known) changed(id disk.ID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.of(id).changed = time.Now()
}

// saw notes what a look showed of a disk.
func (k *known) saw(id disk.ID, look glimpse[disk.Disk]) {
	k.mu.Lock()
	defer k.mu.Unlock()
	what := k.of(id)
	what.look = &look
	k.whole = append(k.whole, wholeLook{what, &look})
	k.shorten(time.Now())
}

// shorten drops the looks that are too old to be fresh.
func (k *known) shorten(now time.Time) {
	for len(k.whole) > 0 && now.Sub(k.whole[0].look.back) > wholeKept {
		if oldest := k.whole[0]; oldest.of.look == oldest.look {
			oldest.of.look = nil
		}
		k.whole = k.whole[1:]
	}
}

// fresh returns a look that has just come back, if nothing was asked of the disk since it left: it says as much as one that
// leaves now and takes as long.
func (k *known) fresh(id disk.ID) (disk.Disk, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	what := k.of(id)
	look := what.look
	if look == nil || look.err != nil || !look.found || !look.left.After(what.changed) || time.Since(look.back) >= look.back.Sub(look.left) {
		return disk.Disk{}, false
	}
	return look.shown, true
}
