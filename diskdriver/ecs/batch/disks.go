package batch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/internal/deadline"
)

// Kind is a kind of change that ECS goes on with after it has answered. How long
// it takes is learned for each kind.
type Kind int

// The kinds of changes.
const (
	Unknown Kind = iota
	Attach
	Detach
	Create
	kinds
)

// Change is a change of a disk.
type Change struct {
	Disk disk.ID
	Kind Kind
	// Since is when ECS answered that it has taken the change on, and Reply how long that took. Zero stands for: long ago or
	// not known, and makes the first read leave at once.
	Since time.Time
	Reply time.Duration
}

// mostRefusals is how many reads in a row ECS must refuse for a reason that a
// retry doesn't mend before a wait ends with it.
const mostRefusals = 3

// firstBackoff and lastBackoff bound the time from a read that failed to the next.
const (
	firstBackoff = time.Second
	lastBackoff  = 16 * time.Second
)

// Disks reads the disks of one account: for those who want to know one, and for
// those who wait for it to change. It is safe for concurrent use.
type Disks struct {
	reader    *Reader[disk.ID, disk.Disk]
	recent    *Recent
	waits     *Waits
	sees      func(ctx context.Context, since time.Time) error
	schedules [kinds]schedule
}

// NewDisks returns Disks that learn from a reader, and keep what it shows in recent. sees is nil if a read that left since then
// has shown any disk: else none is NotFound.
func NewDisks(reader *Reader[disk.ID, disk.Disk], recent *Recent, waits *Waits, sees func(ctx context.Context, since time.Time) error) *Disks {
	return &Disks{reader: reader, recent: recent, waits: waits, sees: sees}
}

// Get reads one disk. NotFound: two reads didn't show it, though ECS shows others.
func (d *Disks) Get(ctx context.Context, id disk.ID) (disk.Disk, error) {
	got, err := d.reader.Get(ctx, id)
	switch {
	case err != nil:
		return disk.Disk{}, d.failed(id, err)
	case !got.Found:
		return disk.Disk{}, d.notShown(ctx, id, got.Sent)
	}
	d.recent.saw(id, got)
	return got.Value, nil
}

// GetCached returns a disk as a read has just shown it, if no call has changed it
// since; else it is Get.
func (d *Disks) GetCached(ctx context.Context, id disk.ID) (disk.Disk, error) {
	if shown, ok := d.recent.fresh(id); ok {
		return shown.Value, nil
	}
	return d.Get(ctx, id)
}

// Await reads a disk again and again until seen says that it is done or that it
// failed, and returns the disk as it was seen last. All who wait share calls,
// and none is made while nobody waits. seen is called by Await alone, and never
// at the same time twice. A read of a disk that is being made counts as the first
// if it has just come back, for nothing else changes such a disk.
//
// A read that fails ends no wait: it is repeated as long as ctx leaves the time
// to answer. Then the error is Pending if ECS has shown the disk, and else says
// why it couldn't be read. NotFound: several reads in a row didn't show the
// disk, though ECS shows others. Denied and the like: ECS refuses reads.
func (d *Disks) Await(ctx context.Context, c Change, seen func(disk.Disk) (done bool, err error)) (disk.Disk, error) {
	limited, cancel := deadline.BeforeAnswer(ctx)
	defer cancel()
	d.waits.add(&c)
	defer d.waits.remove(&c)
	w := &wait{Change: &c, began: time.Now(), schedule: &d.schedules[c.Kind]}
	if shown, ok := d.recent.fresh(c.Disk); ok && c.Kind == Create {
		w.known = &shown
	}
	for {
		if err := w.read(ctx, limited, d.reader); err != nil {
			return w.disk(), w.timedOut(ctx, d.reader.config.Action)
		}
		switch {
		case w.last.err != nil:
			if w.failures >= mostRefusals && !isTransient(w.last.err) {
				return w.disk(), d.failed(c.Disk, w.last.err)
			}
		case !w.last.Found:
			if w.absent > len(absences) {
				return w.disk(), d.notShown(ctx, c.Disk, w.sent)
			}
		default:
			d.recent.saw(c.Disk, w.last)
			done, err := seen(w.disk())
			if done {
				w.learn()
			}
			if c.Kind == Create && w.disk().State != disk.Creating {
				d.recent.End(c.Disk)
			}
			if done || err != nil {
				return w.disk(), err
			}
		}
	}
}

// failed returns the error of a read as that of one of its disks.
func (d *Disks) failed(id disk.ID, err error) error {
	e := &disk.Error{Op: d.reader.config.Action, Disk: id, Kind: disk.KindOf(err), Err: err}
	var shared *disk.Error
	if errors.As(err, &shared) {
		e.RequestID, e.Err = shared.RequestID, shared.Err
	}
	return e
}

// notShown is the error for a disk that reads don't show, the last of which was sent at the time.
func (d *Disks) notShown(ctx context.Context, id disk.ID, sent time.Time) error {
	if err := d.sees(ctx, sent); err != nil {
		return d.failed(id, err)
	}
	return &disk.Error{Op: d.reader.config.Action, Disk: id, Kind: disk.NotFound, Err: errNotShown}
}

var errNotShown = errors.New("ECS shows no such disk")

// wait is what one operation that waits for a change has seen so far.
type wait struct {
	*Change
	schedule *schedule
	began    time.Time
	known    *Observation[disk.Disk] // of a read before the wait, which has not been looked at yet

	last     Observation[disk.Disk] // of the last read, whatever came of it
	shown    Observation[disk.Disk] // of the last one that showed the disk
	sent     time.Time              // when the last read that was answered was sent; zero without one
	before   time.Time              // and the one before
	absent   int                    // answers in a row that didn't show the disk
	failures int                    // reads in a row
}

// disk returns the disk as it was seen last.
func (w *wait) disk() disk.Disk { return w.shown.Value }

// read waits for the next read of the disk and notes what it shows. The error is
// that of limited, which ends before ctx.
func (w *wait) read(ctx, limited context.Context, r *Reader[disk.ID, disk.Disk]) error {
	if limited.Err() != nil {
		return limited.Err()
	}
	if w.known != nil {
		w.note(*w.known)
		w.known = nil
		return nil
	}
	q := &request[disk.ID, disk.Disk]{id: w.Disk, since: w.began, due: w.due(), wanted: w.wanted(limited)}
	r.add(ctx, q)
	select {
	case got := <-q.answer:
		w.note(got)
		return nil
	case <-limited.Done():
		r.cancel(q)
		return limited.Err()
	}
}

// due returns the earliest time of the next read.
func (w *wait) due() time.Time {
	switch {
	case w.failures > 0:
		return w.last.Received.Add(min(firstBackoff<<(w.failures-1), lastBackoff))
	case w.absent > 0:
		return w.sent.Add(absences[w.absent-1])
	case !w.sent.IsZero():
		return w.sent.Add(shortestPause)
	case w.Since.IsZero():
		return w.began
	}
	return w.Since.Add(shortestPause)
}

// wanted returns how likely the next read is to show what is waited for. The last one that can be back in time is certain to
// be made.
func (w *wait) wanted(limited context.Context) likelihood {
	if w.failures > 0 || w.absent > 0 || w.sent.IsZero() && w.Since.IsZero() {
		return certain
	}
	since, read := w.Since, time.Duration(0)
	if since.IsZero() {
		since = w.began
	}
	if !w.sent.IsZero() {
		read = max(w.sent.Sub(since), time.Millisecond)
	}
	end, ends := limited.Deadline()
	answer := w.shown.Received.Sub(w.shown.Sent)
	end = end.Add(-2*answer - shortestPause)
	reply := cmp.Or(w.Reply, answer)
	return func(now time.Time, enough float64) float64 {
		if ends && !now.Before(end) {
			return 1
		}
		return w.schedule.over(read, now.Sub(since), reply, enough)
	}
}

// note adds what a read shows.
func (w *wait) note(got Observation[disk.Disk]) {
	w.last = got
	if got.err != nil {
		w.failures++
		return
	}
	w.failures = 0
	w.before, w.sent = w.sent, got.Sent
	if !got.Found {
		w.absent++
		return
	}
	w.absent, w.shown = 0, got
}

// learn tells the schedule when the change was over. A read that was held up
// says too little.
func (w *wait) learn() {
	if w.Kind == Unknown || w.Since.IsZero() || w.last.Received.Sub(w.last.Sent) >= heldUp {
		return
	}
	seen := span{by: w.sent.Sub(w.Since)}
	if !w.before.IsZero() {
		seen.after = max(0, w.before.Sub(w.Since))
	}
	if seen.after < seen.by {
		w.schedule.note(seen)
	}
}

// timedOut is the error of a wait whose time has ended.
func (w *wait) timedOut(ctx context.Context, action string) error {
	kind := disk.Unreachable
	why := "no read was answered in time"
	switch {
	case w.disk().ID != "":
		kind, why = disk.Pending, fmt.Sprintf("not done after %v; the disk was last seen %s", time.Since(w.began).Round(time.Millisecond), w.disk().State)
	case w.last.err != nil:
		kind, why = disk.KindOf(w.last.err), "the disk couldn't be read"
	case w.absent > 0:
		kind, why = disk.Pending, "ECS doesn't show the disk yet"
	}
	e := &disk.Error{Op: action, Disk: w.Disk, Kind: kind}
	if cause := cmp.Or(w.last.err, ctx.Err()); cause != nil {
		e.Err = fmt.Errorf("%s: %w", why, cause)
	} else {
		e.Err = errors.New(why)
	}
	return e
}
