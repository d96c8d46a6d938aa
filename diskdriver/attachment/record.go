package attachment

import (
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// phase is what this process has last made of a disk and an instance.
type phase int

const (
	unknown   phase = iota
	attaching       // ECS may be attaching the disk
	attached        // it is attached
	detaching       // ECS may be detaching it
	detached        // it is detached
)

func (p phase) String() string {
	return [...]string{"unknown", "attaching", "attached", "detaching", "detached"}[p]
}

// Record is what this process knows of one disk and one instance. It is pure.
type Record struct {
	phase phase
	// By then a call without an answer has arrived or is lost, and an attach that ECS has accepted shows.
	arrivesBy, showsBy time.Time

	before    string    // the DetachedTime shown with our attachment
	ended     string    // the DetachedTime of its end, if that is later; empty once there is a new mark
	ordered   bool      // before is known, and the disk is for one instance
	shown     string    // the AttachedTime that was shown before an attach was sent that ECS accepted, which is that of an earlier attachment
	needsMark bool      // reads of the next attachment can be told from those of the last by a new mark alone
	accepted  bool      // ECS has accepted a detach since the last attach
	refused   time.Time // when ECS first refused to detach the disk for its state
	askAgain  time.Time // when it is asked next

	readOnly bool      // of what is attached
	tagged   bool      // this process has tagged the disk that the instance may not write, which reads need not show yet
	untagBy  time.Time // by then a call without an answer that removes the tag has arrived or is lost

	wanted      phase     // what the CO asks for, and is not done: attached or detached
	asked, last time.Time // when it did so first and last
}

// open is until when a call of ours may yet take effect.
func (r *Record) open() time.Time {
	if r.showsBy.After(r.arrivesBy) {
		return r.showsBy
	}
	return r.arrivesBy
}

// become notes what has become of the attachment.
func (r *Record) become(p phase) {
	r.phase = p
	if p == attached || p == detached {
		r.showsBy, r.refused, r.askAgain, r.accepted, r.wanted, r.shown = time.Time{}, time.Time{}, time.Time{}, false, unknown, ""
	}
}

// sent notes how ECS has replied to a call that leads to a phase.
func (r *Record) sent(to phase, reply disk.Reply, now time.Time) {
	switch reply.Answer {
	case disk.NoAnswer: // its age says when the operation began: it may have been signed again since, with other keys
		r.arrivesBy = latest(r.arrivesBy, now.Add(disk.RequestLifetime))
	case disk.Accepted, disk.AlreadyDetaching:
		r.showsBy = time.Time{} // ECS detaches what is attached
		if to == attaching {
			r.showsBy = now.Add(disk.RequestLifetime - reply.Age)
		}
	case disk.Refused, disk.WrongState, disk.Elsewhere, disk.NotAttached, disk.NoInstance:
		if !r.mayBeSecond(to, reply.Answer) {
			return
		}
	case disk.Unsent:
		return
	}
	r.phase, r.askAgain = to, time.Time{}
	r.accepted = to == detaching && (r.accepted || reply.Answer == disk.Accepted || reply.Answer == disk.AlreadyDetaching)
}

// mayBeSecond says whether the call to a phase may have been carried out although ECS has refused it: a proxy may have asked twice, and this
// is the second answer. What was attached or proved to be off until then isn't known to be so any more.
func (r *Record) mayBeSecond(to phase, answer disk.Answer) bool {
	if to == attaching {
		return r.phase == unknown || r.phase == detached
	}
	return answer == disk.WrongState
}

// off says whether the reply to a detach, and the read after it, prove that the instance doesn't have the disk and won't; else it notes
// when to ask again. Doubtful is what a read that is later than the reply proves, if it shows the same.
func (r *Record) off(d disk.Disk, reply disk.Reply, now time.Time) (proved, doubtful bool) {
	sent, first := now.Add(-reply.Age), r.refused
	r.askAgain, r.refused = time.Time{}, time.Time{}
	switch {
	case reply.Answer == disk.NoInstance:
		return true, false
	case reply.Answer == disk.NoAnswer: // ECS may never get it
	case sent.Before(r.open()):
		r.askAgain = r.open()
	case reply.Answer == disk.NotAttached, reply.Answer == disk.Elsewhere:
		return true, false
	case reply.Answer == disk.WrongState && len(d.Attachments) == 0:
		return r.offByState(sent, first)
	case reply.Answer == disk.Accepted, reply.Answer == disk.AlreadyDetaching:
		return r.ordered && !d.MultiAttach && disk.Later(d.Released, r.before), false
	}
	return false, false
}

// offByState is off for an ECS that says no more than that the state of the disk is wrong, as its page has it for a disk that is
// detached, too. An attach is refused so as well, but not any more once ECS has detached the disk. If it never has, the refusal is
// doubtful, and so is a read that follows at once, for an attach may be slow to show.
func (r *Record) offByState(sent, first time.Time) (proved, doubtful bool) {
	if first.IsZero() {
		first = sent
	}
	r.refused, r.askAgain = first, first.Add(disk.RequestLifetime)
	return r.accepted, !sent.Before(r.askAgain)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
