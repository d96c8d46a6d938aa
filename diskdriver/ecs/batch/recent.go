package batch

import (
	"sync"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// recentKept is for how long what is known of a disk is kept that nothing happens to.
const recentKept = time.Minute

// Recent is what this process has just learned of disks: what the last read showed of each, and the change that it has begun.
// Both are hints of a moment: a read, or ECS's answer to the next call, has the last word. It is safe for concurrent use.
type Recent struct {
	shown func(disk.Disk)

	mu       sync.Mutex
	disks    expiring[knowledge]
	observed expiring[Observation[disk.Disk]] // large, and many in a crowd: kept while they are fresh
}

type knowledge struct {
	underWay Change    // of no Kind if nothing is
	changed  time.Time // when the last call that changes the disk ended
}

// NewRecent returns a Recent that knows nothing. It passes on what every read shows of a disk.
func NewRecent(shown func(disk.Disk)) *Recent {
	return &Recent{shown: shown}
}

// Begin notes a change of a disk.
func (r *Recent) Begin(c Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.disks.keep(c.Disk, recentKept).underWay = c
}

// End forgets the change of a disk.
func (r *Recent) End(id disk.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.disks.keep(id, recentKept).underWay = Change{}
}

// UnderWay returns the change of a disk that is under way, or one of which nothing is known.
func (r *Recent) UnderWay(id disk.ID) Change {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.disks.keep(id, recentKept).underWay
	c.Disk = id
	return c
}

// Changed notes that a call has ended that changes the disk, whatever became of it.
func (r *Recent) Changed(id disk.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.disks.keep(id, recentKept).changed = time.Now()
}

// saw notes what a read showed of a disk.
func (r *Recent) saw(id disk.ID, o Observation[disk.Disk]) {
	if o.err == nil && o.Found {
		r.shown(o.Value)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	*r.observed.keep(id, o.Received.Sub(o.Sent)) = o
}

// fresh returns what a read showed of a disk that has just come back, if no call has changed it since that was sent: it says as
// much as one that is sent now and takes as long. One that was held up, as by a limit of calls, says nothing of now.
func (r *Recent) fresh(id disk.ID) (o Observation[disk.Disk], ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.observed.values[id]
	if seen == nil {
		return o, false
	}
	o = seen.value
	took := o.Received.Sub(o.Sent)
	ok = o.err == nil && o.Found && o.Sent.After(r.disks.keep(id, recentKept).changed) && took < heldUp && time.Since(o.Received) < took
	return o, ok
}

// expiring keeps values of disks, each for a span of time, and some longer.
type expiring[V any] struct {
	values map[disk.ID]*expiringValue[V]
	swept  time.Time
}

type expiringValue[V any] struct {
	value V
	until time.Time
}

// keep returns the value of a disk, the zero one if there was none, which is kept for a span of time from now.
func (e *expiring[V]) keep(id disk.ID, kept time.Duration) *V {
	now := time.Now()
	if e.values == nil || now.Sub(e.swept) > kept {
		values := make(map[disk.ID]*expiringValue[V])
		for other, v := range e.values {
			if !v.until.Before(now) {
				values[other] = v
			}
		}
		e.values, e.swept = values, now
	}
	v := e.values[id]
	if v == nil {
		v = &expiringValue[V]{}
		e.values[id] = v
	}
	v.until = now.Add(kept)
	return &v.value
}
