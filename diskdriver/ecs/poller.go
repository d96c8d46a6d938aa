package ecs

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/internal/deadline"
	"github.com/topodisk/topodisk/diskdriver/ecs/transport"
)

// change is a kind of change that ECS goes on with after it has answered. How
// long it takes is learned for each kind.
type change int

const (
	anyChange change = iota // which nothing is known of
	toAttach
	toDetach
	toSettle // of a disk just made
	changes
)

// absences are the pauses between looks at a disk that isn't shown: ECS may
// show a disk late, and an old state of it. After the last one it is gone.
var absences = []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second}

// lookFailures is how many looks in a row ECS must refuse for a reason that
// time doesn't mend before a wait ends with it.
const lookFailures = 3

// firstBackoff and lastBackoff bound the time from a look that failed to the next.
const (
	firstBackoff = time.Second
	lastBackoff  = 16 * time.Second
)

// wait is somebody who waits for a disk to change.
type wait struct {
	id     disk.ID
	change change
	// since is when ECS answered that it has taken the change on, and reply how long that took. Zero stands for: long ago or
	// not known, and makes the first look leave at once.
	since time.Time
	reply time.Duration
}

// poller waits for disks of one account.
type poller struct {
	reads     *reads[disk.ID, disk.Disk]
	schedules [changes]schedule
	waits     *waits
}

func newPoller(r *reads[disk.ID, disk.Disk], w *waits) *poller { return &poller{reads: r, waits: w} }

// Await reads a disk again and again until seen says that it is done or that it
// failed, and returns the disk as it was seen last. All who wait share calls,
// and none is made while nobody waits. seen is called by Await alone, and never
// at the same time twice.
//
// A read that fails ends no wait: it is repeated as long as ctx leaves the time
// to answer. Then the error is Pending if ECS has shown the disk, and else says
// why it couldn't be read. NotFound: several reads in a row didn't show the
// disk, though they would have. Denied and the like: ECS refuses reads.
func (c *Client) Await(ctx context.Context, id disk.ID, seen func(disk.Disk) (done bool, err error)) (disk.Disk, error) {
	return c.await(ctx, c.known.underWay(id), seen)
}

// await is Await for a change whose kind and beginning are known.
func (c *Client) await(ctx context.Context, w wait, seen func(disk.Disk) (done bool, err error)) (disk.Disk, error) {
	if !possibleID.MatchString(string(w.id)) {
		return disk.Disk{}, notAnID(w.id)
	}
	patient, cancel := deadline.BeforeAnswer(ctx)
	defer cancel()
	c.poller.waits.enter(&w)
	defer c.poller.waits.leave(&w)
	s := &sightings{wait: &w, began: time.Now(), schedule: &c.poller.schedules[w.change]}
	for {
		if err := s.seek(ctx, patient, c.poller.reads); err != nil {
			return s.last, s.gaveUp(ctx)
		}
		switch {
		case s.failure != nil:
			if s.failures >= lookFailures && !transient(s.failure) {
				return s.last, about(w.id, s.failure)
			}
		case !s.found:
			if s.absent > len(absences) {
				return s.last, notShown(w.id)
			}
		default:
			c.known.saw(w.id, s.look)
			done, err := seen(s.last)
			if done {
				s.learn()
			}
			if s.change == toSettle && s.last.State != disk.Creating {
				c.known.over(w.id)
			}
			if done || err != nil {
				return s.last, err
			}
		}
	}
}

// waits counts who waits for a disk of any account.
type waits struct {
	mu    sync.Mutex
	began map[*wait]time.Time
}

func newWaits() *waits { return &waits{began: make(map[*wait]time.Time)} }

func (all *waits) enter(w *wait) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.began[w] = time.Now()
}

func (all *waits) leave(w *wait) {
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.began, w)
}

// now returns how many wait, and for how long the first of them has.
func (all *waits) now() (n int, oldest time.Duration) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, began := range all.began {
		oldest = max(oldest, time.Since(began))
	}
	return len(all.began), oldest
}

// sightings is what one wait has seen so far.
type sightings struct {
	*wait
	schedule *schedule
	began    time.Time

	looks    int       // that were answered
	looked   time.Time // when the last of them left
	found    bool      // it showed the disk
	last     disk.Disk
	look     glimpse[disk.Disk]
	missed   time.Time // when the last look but one left that showed the disk
	prompt   bool      // the last look came back soon
	absent   int       // looks in a row that didn't show the disk
	failure  error     // of the last look
	failures int       // in a row
	failedAt time.Time
}

// seek waits for the next look at a disk and takes down what it shows. The
// error is that of patient, which ends before ctx.
func (s *sightings) seek(ctx, patient context.Context, r *reads[disk.ID, disk.Disk]) error {
	if patient.Err() != nil {
		return patient.Err()
	}
	a := &ask[disk.ID, disk.Disk]{id: s.id, since: s.began, due: s.due(), wanted: s.wanted(patient)}
	r.join(ctx, a)
	select {
	case got := <-a.answer:
		s.take(got)
		return nil
	case <-patient.Done():
		r.quit(a)
		return patient.Err()
	}
}

// due returns the earliest time of the next look.
func (s *sightings) due() time.Time {
	switch {
	case s.failures > 0:
		return s.failedAt.Add(min(firstBackoff<<(s.failures-1), lastBackoff))
	case s.absent > 0:
		return s.looked.Add(absences[s.absent-1])
	case s.looks > 0:
		return s.looked.Add(shortestPause)
	case s.since.IsZero():
		return s.began
	}
	return s.since.Add(shortestPause)
}

// wanted returns how likely the next look is to show what is waited for. The last one that can be back in time is certain to
// be made.
func (s *sightings) wanted(patient context.Context) func(now time.Time) float64 {
	if s.failures > 0 || s.absent > 0 || s.looks == 0 && s.since.IsZero() {
		return certain
	}
	since, looked := s.since, time.Duration(0)
	if since.IsZero() {
		since = s.began
	}
	if s.looks > 0 {
		looked = max(s.looked.Sub(since), time.Millisecond)
	}
	end, limited := patient.Deadline()
	answer := s.look.back.Sub(s.look.left)
	end = end.Add(-2*answer - shortestPause)
	reply := cmp.Or(s.reply, answer)
	return func(now time.Time) float64 {
		if limited && !now.Before(end) {
			return 1
		}
		return s.schedule.over(looked, now.Sub(since), reply)
	}
}

// take takes down what a look shows.
func (s *sightings) take(got glimpse[disk.Disk]) {
	if s.failure = got.err; got.err != nil {
		s.failures++
		s.failedAt = got.back
		return
	}
	s.failures = 0
	s.missed = s.looked
	s.looks++
	s.looked, s.prompt = got.left, got.back.Sub(got.left) < time.Second
	if s.found = got.found; !got.found {
		s.absent++
		return
	}
	s.absent, s.last, s.look = 0, got.shown, got
}

// learn tells the schedule when the change was over. A look that was held up
// says too little.
func (s *sightings) learn() {
	if s.change == anyChange || s.since.IsZero() || !s.prompt {
		return
	}
	seen := span{by: s.looked.Sub(s.since)}
	if !s.missed.IsZero() {
		seen.after = max(0, s.missed.Sub(s.since))
	}
	if seen.after < seen.by {
		s.schedule.note(seen)
	}
}

// gaveUp is the error of a wait whose time has ended.
func (s *sightings) gaveUp(ctx context.Context) error {
	kind := disk.Unreachable
	why := "no read was answered in time"
	switch {
	case s.last.ID != "":
		kind, why = disk.Pending, fmt.Sprintf("not done after %v; the disk was last seen %s", time.Since(s.began).Round(time.Millisecond), s.last.State)
	case s.failure != nil:
		kind, why = disk.KindOf(s.failure), "the disk couldn't be read"
	case s.absent > 0:
		kind, why = disk.Pending, "ECS doesn't show the disk yet"
	}
	e := &disk.Error{Op: transport.DescribeDisks.Name, Disk: s.id, Kind: kind}
	switch {
	case s.failure != nil:
		e.Err = fmt.Errorf("%s: %w", why, s.failure)
	case ctx.Err() != nil:
		e.Err = fmt.Errorf("%s: %w", why, ctx.Err())
	default:
		e.Err = fmt.Errorf("%s", why)
	}
	return e
}

// transient says whether an error is one that time mends.
func transient(err error) bool {
	switch disk.KindOf(err) {
	case disk.Throttled, disk.Unreachable, disk.Pending:
		return true
	}
	return false
}
