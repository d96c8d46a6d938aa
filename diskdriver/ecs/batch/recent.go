package batch

import (
	"sync"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

const (
	// recentKept is for how long what is known of a disk is kept that nothing happens to.
	recentKept = time.Minute
	// observationKept is for how long all that a read showed is kept.
	observationKept = 2 * time.Second
)

// Recent is what this process has just learned of disks: what the last read showed of each, and the change that it has begun.
// Both are hints of a moment: a read, or ECS's answer to the next call, has the last word. It is safe for concurrent use.
type Recent struct {
	mu       sync.Mutex
	disks    expiring[knowledge]
	observed expiring[Observation[disk.Disk]]
}

type knowledge struct {
	underWay Change    // of no Kind if nothing is
	changed  time.Time // when the last call that changes the disk ended
}

// NewRecent returns a Recent that knows nothing.
func NewRecent() *Recent {
	return &Recent{disks: expiring[knowledge]{kept: recentKept}, observed: expiring[Observation[disk.Disk]]{kept: observationKept}}
}

// Begin notes a change of a disk.
func (r *Recent) Begin(c Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.disks.get(c.Disk).underWay = c
}

// End forgets the change of a disk.
func (r *Recent) End(id disk.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.disks.get(id).underWay = Change{}
}

// UnderWay returns the change of a disk that is under way, or one of which nothing is known.
func (r *Recent) UnderWay(id disk.ID) Change {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.disks.get(id).underWay
	c.Disk = id
	return c
}

// Changed notes that a call has ended that changes the disk, whatever became of it.
func (r *Recent) Changed(id disk.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.disks.get(id).changed = time.Now()
}

// saw notes what a read showed of a disk.
func (r *Recent) saw(id disk.ID, o Observation[disk.Disk]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*r.observed.get(id) = o
}

// fresh returns a disk as a read showed it that has just come back, if no call has changed it since that was sent: it says as
// much as one that is sent now and takes as long.
func (r *Recent) fresh(id disk.ID) (disk.Disk, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.observed.get(id)
	ok := o.err == nil && o.Found && o.Sent.After(r.disks.get(id).changed) && time.Since(o.Received) < o.Received.Sub(o.Sent)
	return o.Value, ok
}

// expiring keeps a value for each disk that was asked for in a span of time, and
// some longer.
type expiring[V any] struct {
	kept   time.Duration
	values map[disk.ID]*expiringValue[V]
	swept  time.Time
}

type expiringValue[V any] struct {
	value V
	used  time.Time
}

// get returns the value of a disk, the zero one if there was none.
func (e *expiring[V]) get(id disk.ID) *V {
	now := time.Now()
	if now.Sub(e.swept) > e.kept {
		kept := make(map[disk.ID]*expiringValue[V])
		for other, v := range e.values {
			if now.Sub(v.used) <= e.kept {
				kept[other] = v
			}
		}
		e.values, e.swept = kept, now
	}
	v := e.values[id]
	if v == nil {
		v = &expiringValue[V]{}
		e.values[id] = v
	}
	v.used = now
	return &v.value
}
