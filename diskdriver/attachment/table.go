package attachment

import (
	"sync"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// Table holds the Records of what this process does, or has just done, for any account: disks have one ID over all of them.
//
// Other replicas of the driver ask ECS, too, so what this process has not settled itself since it was activated may be hidden,
// however old the process is. It is activated by the first publish or unpublish after lag without one: until then another replica
// may have had them all. A replica that loses the calls doesn't get them back sooner: csi-attacher's Lease lasts for 15 s.
type Table struct {
	mu        sync.Mutex
	disks     map[disk.ID]map[disk.InstanceID]*Record
	activated time.Time
	running   int       // publishes and unpublishes
	idle      time.Time // when the last of them ended
	swept     time.Time

	limit    Limit
	admitted int            // calls that have ever asked to wait
	waiting  map[phase]int  // calls by what they want
	asked    map[phase]bool // what has ever been
}

// NewTable returns an empty Table that lets so many calls of a kind wait at a time.
func NewTable(limit Limit) *Table {
	return &Table{disks: make(map[disk.ID]map[disk.InstanceID]*Record), limit: limit, waiting: make(map[phase]int), asked: make(map[phase]bool)}
}

// begin notes a publish or an unpublish, and returns what notes its end.
func (t *Table) begin(id disk.ID, instance disk.InstanceID, wanted phase) (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if t.running == 0 && now.Sub(t.idle) >= lag {
		t.activated = now
	}
	t.running++
	t.sweep(now)
	t.asked[wanted] = true
	t.record(id, instance).ask(wanted, now)
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.running--
		t.idle = time.Now()
	}
}

// sweep forgets the Records that nobody asks for.
func (t *Table) sweep(now time.Time) {
	if now.Sub(t.swept) < lag {
		return
	}
	t.swept = now
	for id, records := range t.disks {
		for instance, r := range records {
			if now.Sub(r.since) > kept && now.Sub(r.last) > longestRetry {
				delete(records, instance)
			}
		}
		if len(records) == 0 {
			delete(t.disks, id)
		}
	}
}

// record returns the Record of a disk and an instance, to be used with the lock held.
func (t *Table) record(id disk.ID, instance disk.InstanceID) *Record {
	records := t.disks[id]
	if records == nil {
		records = make(map[disk.InstanceID]*Record)
		t.disks[id] = records
	}
	r := records[instance]
	if r == nil {
		r = &Record{instance: instance}
		records[instance] = r
	}
	return r
}

// view returns what is known of a disk now, to be used with the lock held.
func (t *Table) view(id disk.ID) view {
	return view{records: t.disks[id], activated: t.activated, now: time.Now()}
}

// change lets f change the Record of a disk and an instance.
func (t *Table) change(id disk.ID, instance disk.InstanceID, f func(r *Record, now time.Time)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(t.record(id, instance), time.Now())
}

// phase returns what this process has made of a disk and an instance since it was activated.
func (t *Table) phase(id disk.ID, instance disk.InstanceID) phase {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.view(id).own(instance)
}

// join notes that a look, behind which reads don't lag (view.hides), shows a disk on an instance, and takes the mark of the process before
// for one of this process if it was that which has attached the disk.
func (t *Table) join(d disk.Disk, instance disk.InstanceID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, now := t.record(d.ID, instance), time.Now()
	if t.view(d.ID).own(instance) == unknown && isInUse(d) {
		r.inUse, r.marked = d.Tags[disk.HistoryTag], now
	}
	r.become(attached, now)
}

// mark notes that this process has set disk.HistoryTag of a disk that it is about to attach to an instance.
func (t *Table) mark(id disk.ID, instance disk.InstanceID, inUse string) {
	t.change(id, instance, func(r *Record, now time.Time) { r.inUse, r.marked = inUse, now })
}

// unmark notes that the next attachment of a disk to an instance, or to any if none is named, needs a mark of its own.
func (t *Table) unmark(id disk.ID, instance disk.InstanceID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for other, r := range t.disks[id] {
		if instance == "" || other == instance {
			r.unmarked = time.Now()
		}
	}
}

// marked returns what this process has set disk.HistoryTag of a disk to, since it was activated and since it was last asked to take the
// disk from an instance, and whether that is so short a time ago that reads may not show it; empty: nothing.
func (t *Table) marked(id disk.ID, instance disk.InstanceID) (inUse string, hidden bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, last := time.Now(), &Record{}
	for _, r := range t.disks[id] {
		if r.marked.After(last.marked) && !r.marked.Before(t.activated) {
			last = r
		}
	}
	if !last.marked.After(t.record(id, instance).unmarked) {
		return "", false
	}
	return last.inUse, now.Sub(last.marked) < lag
}

// untilShown is how long it takes until reads show what other replicas have done to a disk and an instance.
func (t *Table) untilShown(id disk.ID, instance disk.InstanceID) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.view(id)
	return v.shownFrom(instance, lag).Sub(v.now)
}

// publishes decides what a publish does next.
func (t *Table) publishes(d disk.Disk, p Publication) (step, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return p.next(d, t.view(d.ID).hides(p.Instance))
}

// unpublishes decides what an unpublish does next, and for detach names the instances.
func (t *Table) unpublishes(d disk.Disk, instance disk.InstanceID) (step, []disk.InstanceID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.view(d.ID).unpublish(d, instance)
}

// view is what this process knows of one disk at a time. It is pure.
type view struct {
	records        map[disk.InstanceID]*Record
	activated, now time.Time
}

// own is what this process has made of the disk and an instance since it was activated.
func (v view) own(instance disk.InstanceID) phase {
	if r := v.records[instance]; r != nil && !r.since.Before(v.activated) {
		return r.phase
	}
	return unknown
}

// shownFrom is from when on ECS shows what other replicas have done to the disk and an instance, if that
// takes so long to show: when this process has been the active one for as long, or
// has been asked for the same for longer than any change lasts. Without the latter
// a call that has less time than that, and comes again rarely, would never end.
func (v view) shownFrom(instance disk.InstanceID, within time.Duration) time.Time {
	from := v.activated.Add(within)
	if r := v.records[instance]; r != nil && r.wanted != unknown && r.first.Add(slowestDetach).Before(from) {
		return r.first.Add(slowestDetach)
	}
	return from
}

// shows says whether ECS shows it by now.
func (v view) shows(instance disk.InstanceID, within time.Duration) bool {
	return !v.now.Before(v.shownFrom(instance, within))
}

// hides is what reads may hide from a publish.
func (v view) hides(instance disk.InstanceID) hidden {
	own := v.own(instance)
	h := hidden{
		attachingElsewhere: !v.shows(instance, lag),
		detachedHere:       own == unknown && !v.shows(instance, lag),
		detachingHere:      own != attaching && own != attached && !v.shows(instance, slowestDetach),
	}
	for other, p := range v.lately() {
		switch here := other == instance; {
		case p == detached && here:
			h.detachedHere = true
		case p == detached:
			h.detachedElsewhere = append(h.detachedElsewhere, other)
		case p == attached && here:
			h.attachedHere = true
		case !here && p != detaching:
			h.attachingElsewhere = true
		}
	}
	return h
}

// lately is what this process has made of the disk so short a time ago that reads may not show it.
func (v view) lately() map[disk.InstanceID]phase {
	phases := map[disk.InstanceID]phase{}
	for instance, r := range v.records {
		if r.phase != unknown && v.now.Sub(r.since) < lag {
			phases[instance] = r.phase
		}
	}
	return phases
}

// unpublish decides what comes next for a disk that is to be detached from an instance, or from all if none is named, going by what
// ECS shows and may hide.
func (v view) unpublish(d disk.Disk, instance disk.InstanceID) (step, []disk.InstanceID) {
	next, instances := shownUnpublish(v.hides(instance).correct(d), instance)
	if next != done {
		return next, instances
	}
	if doubtful := v.doubtful(d, instance); len(doubtful) > 0 {
		return detach, doubtful
	}
	if v.mayAttach(instance) {
		return await, nil
	}
	return done, nil
}

// doubtful are the instances, or the one that is named, that ECS may be attaching a disk to, or detaching it from, without showing
// it, and of which its answer to a detach tells: those that this process has asked for, and the one that it knows nothing of. Of a
// disk that others have ECS shows one state for all of them together, so ECS is asked once more when it has got all that other replicas
// have sent; of any other a read shows when reads don't lag any more.
func (v view) doubtful(d disk.Disk, instance disk.InstanceID) []disk.InstanceID {
	shared := isShared(d)
	if instance != "" && v.own(instance) == unknown {
		since := v.activated
		switch shows := v.shows(instance, lag); {
		case shows && shared:
			since = v.shownFrom(instance, lag)
		case shows:
			return nil
		}
		if r := v.records[instance]; r != nil && !r.refused.Before(since) {
			return nil
		}
		return []disk.InstanceID{instance}
	}
	var instances []disk.InstanceID
	for other, r := range v.records {
		if shared && (r.phase == attaching || r.phase == detaching) && (instance == "" || other == instance) && v.now.Sub(r.since) < slowestDetach {
			instances = append(instances, other)
		}
	}
	return instances
}

// mayAttach says whether ECS may attach the disk to an instance, or to any if it is
// empty, or have attached it, without showing it.
func (v view) mayAttach(instance disk.InstanceID) bool {
	if v.own(instance) == unknown && !v.shows(instance, lag) {
		return true
	}
	for other, p := range v.lately() {
		if (instance == "" || other == instance) && (p == attaching || p == attached) {
			return true
		}
	}
	return false
}

// settles says whether the end of a detach shows that the disk is off for good. That there was nothing to detach says nothing of an
// attach that another replica has just sent.
func (v view) settles(instance disk.InstanceID) bool {
	r := v.records[instance]
	return v.own(instance) != unknown || v.shows(instance, lag) || r == nil || r.refused.Before(v.activated)
}
