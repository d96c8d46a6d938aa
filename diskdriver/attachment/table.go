package attachment

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

const (
	// longestRetry is more than csi-attacher lets pass between two calls for the same volume and node: its longest back-off is 5
	// minutes (--retry-interval-max).
	longestRetry = 6 * time.Minute
	// kept is for how long a Record is kept of what is not attached, and nobody asks for.
	kept = time.Hour
)

// callerKey is the key of the caller of a context.
type callerKey struct{}

// WithCaller says whose calls come with a context: those of one connection have one caller, which is compared by ==.
func WithCaller(ctx context.Context, caller any) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// Table holds what this process knows of the disks that its caller has it publish and unpublish, for any account: disks have one ID over
// all of them. It forgets all when another caller comes.
type Table struct {
	mu     sync.Mutex
	caller any
	began  time.Time // when the first call of the caller came
	disks  map[disk.ID]*records
	swept  time.Time

	limit   Limit
	waiting map[phase]int  // calls by what they want
	asked   map[phase]bool // what has ever been
}

// records are those of one disk.
type records struct {
	marking sync.Mutex // held while ECS is asked to set a mark

	mark   string // the value of disk.HistoryTag that this process has set last
	first  bool   // the disk was new then, so that nobody has sent an attach or a detach of it before
	unused bool   // and no publish of it has been OK since
	on     map[disk.InstanceID]*Record
}

// NewTable returns an empty Table that lets so many calls of a kind wait at a time.
func NewTable(limit Limit) *Table {
	return &Table{disks: make(map[disk.ID]*records), limit: limit, waiting: make(map[phase]int), asked: make(map[phase]bool)}
}

// begin notes a publish or an unpublish.
func (t *Table) begin(ctx context.Context, id disk.ID, instance disk.InstanceID, wanted phase) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if caller := ctx.Value(callerKey{}); t.began.IsZero() || caller != t.caller {
		t.caller, t.began, t.disks = caller, now, make(map[disk.ID]*records)
	}
	t.sweep(now)
	t.asked[wanted] = true
	r := t.record(id, instance)
	if r.wanted != wanted || now.Sub(r.last) > longestRetry {
		r.wanted, r.asked = wanted, now
	}
	r.last = now
}

// sweep forgets the Records of what is not attached, and nobody asks for.
func (t *Table) sweep(now time.Time) {
	if now.Sub(t.swept) < time.Minute {
		return
	}
	t.swept = now
	for id, all := range t.disks {
		for instance, r := range all.on {
			if r.phase != attached && now.Sub(r.last) > kept && now.After(r.open()) {
				delete(all.on, instance)
			}
		}
		if len(all.on) == 0 {
			delete(t.disks, id)
		}
	}
}

// of returns the Records of a disk, to be used with the lock held.
func (t *Table) of(id disk.ID) *records {
	all := t.disks[id]
	if all == nil {
		all = &records{on: make(map[disk.InstanceID]*Record)}
		t.disks[id] = all
	}
	return all
}

// record returns the Record of a disk and an instance, to be used with the lock held. What another replica has sent for them may arrive
// for as long as requests live.
func (t *Table) record(id disk.ID, instance disk.InstanceID) *Record {
	all := t.of(id)
	r := all.on[instance]
	if r == nil {
		r = &Record{}
		if !all.first {
			r.arrivesBy = t.began.Add(disk.RequestLifetime)
		}
		all.on[instance] = r
	}
	return r
}

// change lets f change the Record of a disk and an instance.
func (t *Table) change(id disk.ID, instance disk.InstanceID, f func(r *Record, now time.Time)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(t.record(id, instance), time.Now())
}

// known returns a copy of the Record of a disk and an instance.
func (t *Table) known(id disk.ID, instance disk.InstanceID) Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	return *t.record(id, instance)
}

// mark notes the value that this process has set disk.HistoryTag of a disk to, and whether that was new before. Reads that show it are
// later than all detaches before.
func (t *Table) mark(id disk.ID, value string, first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.of(id)
	all.mark, all.first, all.unused = value, all.first || first, all.unused || first
	for _, r := range all.on {
		if r.ended, r.needsMark = "", false; first {
			r.arrivesBy = time.Time{}
		}
	}
}

// lockMark locks the mark of a disk until the function is called that it returns.
func (t *Table) lockMark(id disk.ID) (unlock func()) {
	t.mu.Lock()
	marking := &t.of(id).marking
	t.mu.Unlock()
	marking.Lock()
	return marking.Unlock
}

// unmark has the next publish set a new mark: reads don't show this one in time, or another replica's late call has replaced it.
func (t *Table) unmark(id disk.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of(id).mark = ""
}

// isUnused says whether a disk was new when this process marked it, and no publish of it has been OK since.
func (t *Table) isUnused(id disk.ID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of(id).unused
}

// marked returns that value.
func (t *Table) marked(id disk.ID) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.of(id).mark
}

// needsMark says whether the next attachment of a disk to an instance needs a mark.
func (t *Table) needsMark(id disk.ID, instance disk.InstanceID) bool {
	return t.marked(id) == "" || t.known(id, instance).needsMark
}

// isLater says whether a read that shows a disk on an instance is later than this process's last detach of it, and than what other
// replicas did.
func (t *Table) isLater(d disk.Disk, instance disk.InstanceID) bool {
	r := t.known(d.ID, instance)
	if r.shown != "" && r.shown == d.AttachedSince(instance) {
		return false
	}
	return d.Tags[disk.HistoryTag] == t.marked(d.ID) && !r.needsMark && (r.ended == "" || d.Released == r.ended || disk.Later(d.Released, r.ended))
}

// attach notes that a read shows a disk on an instance, which isLater, and what its tags say of writing, whatever is asked for.
func (t *Table) attach(d disk.Disk, instance disk.InstanceID) {
	t.change(d.ID, instance, func(r *Record, _ time.Time) {
		t.of(d.ID).unused = false
		r.become(attached)
		r.before, r.ordered, r.readOnly = d.Released, !d.MultiAttach, readOnly(d, instance)
	})
}

// detach notes that an instance doesn't have a disk any more, as a read may show it. Unless the order of ECS's times tells reads of the
// next attachment from those of this one, that one needs a mark of its own.
func (t *Table) detach(d disk.Disk, instance disk.InstanceID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.record(d.ID, instance)
	if r.ordered && disk.Later(d.Released, r.before) {
		r.ended = d.Released
	} else if r.phase != unknown && r.phase != detached {
		r.needsMark = true
	}
	r.become(detached)
	r.ordered = false
}

// hasElsewhere says whether this process has attached a disk that one instance may have to another one, and which may have it besides
// for a call of which it doesn't know.
func (t *Table) hasElsewhere(d disk.Disk, instance disk.InstanceID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for other, r := range t.of(d.ID).on {
		if other != instance && r.phase == attached && d.On(other) && !d.MultiAttach && !d.On(instance) {
			return true
		}
	}
	return false
}

// tagged are the readers of a disk, of one instance or of all, and those that this process has made so.
func (t *Table) tagged(d disk.Disk, instance disk.InstanceID) []disk.InstanceID {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := readers(d)
	for one, r := range t.of(d.ID).on {
		if r.tagged {
			all = append(all, one)
		}
	}
	all = slices.DeleteFunc(all, func(one disk.InstanceID) bool { return instance != "" && one != instance })
	slices.Sort(all)
	return slices.Compact(all)
}

// mayHave are the instances that this process has attached a disk to, or may have.
func (t *Table) mayHave(id disk.ID) []disk.InstanceID {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []disk.InstanceID
	for instance, r := range t.of(id).on {
		if instance != "" && r.phase != unknown && r.phase != detached {
			all = append(all, instance)
		}
	}
	slices.Sort(all)
	return all
}

// publishes decides what a publish does next. Of a disk for several instances reads don't show that it is being detached from one, so
// ECS is asked whether one that this process didn't attach it to has it. One that only one instance is to have waits for what is open
// elsewhere: of any other ECS itself refuses a second attachment.
func (t *Table) publishes(d disk.Disk, p Publication) (step, error) {
	next, err := p.next(t.current(d))
	if phase := t.known(d.ID, p.Instance).phase; next == done && d.MultiAttach && phase != attached && phase != attaching {
		next = attach
	}
	if next != attach || !d.MultiAttach || p.Shared || err != nil {
		return next, err
	}
	others := slices.DeleteFunc(t.mayHave(d.ID), func(i disk.InstanceID) bool { return i == p.Instance })
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(others) > 0 || time.Since(t.began) < disk.RequestLifetime {
		return await, err
	}
	return next, err
}

// current leaves out of a read the instances that don't have the disk any more: the read is not known to be later than that.
func (t *Table) current(d disk.Disk) disk.Disk {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.of(d.ID)
	isMarked := d.Tags[disk.HistoryTag] == known.mark
	holders := slices.DeleteFunc(slices.Clone(d.Attachments), func(a disk.Attachment) bool {
		r := known.on[a.Instance]
		switch {
		case r == nil || r.phase != detached:
			return false
		case r.ended == "":
			return !isMarked || r.needsMark
		}
		return d.Released != r.ended && !disk.Later(d.Released, r.ended)
	})
	if len(holders) == 0 && len(d.Attachments) > 0 && (d.State == disk.Attached || d.State == disk.Detaching) {
		d.State = disk.Available
	}
	d.Attachments = holders
	return d
}
