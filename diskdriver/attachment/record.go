package attachment

import (
	"fmt"
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
	// Until then a call without an answer may arrive, or an attach that ECS has accepted may begin to show.
	unanswered, unseen time.Time

	before  string    // the DetachedTime shown with our attachment
	ended   string    // the DetachedTime of its end, if that is later; empty once there is a new mark
	ordered bool      // before is known, and the disk is for one instance
	shown   string    // the AttachedTime that was shown before an attach was sent that ECS accepted, which is that of an earlier attachment
	remark  bool      // reads of the next attachment can be told from those of the last by a new mark alone
	agreed  bool      // ECS has accepted a detach since the last attach
	refused time.Time // when ECS first refused to detach the disk for its state
	again   time.Time // when it is asked next

	readOnly bool // of what is attached

	wanted      phase     // what the CO asks for, and is not done: attached or detached
	asked, last time.Time // when it did so first and last
}

// open is until when a call of ours may yet take effect.
func (r *Record) open() time.Time {
	if r.unseen.After(r.unanswered) {
		return r.unseen
	}
	return r.unanswered
}

// become notes what has become of the attachment.
func (r *Record) become(p phase) {
	r.phase = p
	if p == attached || p == detached {
		r.unseen, r.refused, r.again, r.agreed, r.wanted, r.shown = time.Time{}, time.Time{}, time.Time{}, false, unknown, ""
	}
}

// sent notes how ECS has replied to a call that leads to a phase.
func (r *Record) sent(to phase, reply disk.Reply, now time.Time) {
	expires := now.Add(disk.RequestLifetime - reply.Age)
	switch reply.Answer {
	case disk.NoAnswer:
		r.unanswered = latest(r.unanswered, expires)
	case disk.Accepted, disk.AlreadyDetaching:
		r.unseen = time.Time{} // ECS detaches what is attached
		if to == attaching {
			r.unseen = expires
		}
	case disk.Refused, disk.WrongState, disk.Elsewhere, disk.NotAttached, disk.NoInstance:
		if !r.mayBeSecond(to, reply.Answer) {
			return
		}
	case disk.Unsent:
		return
	}
	r.phase, r.again = to, time.Time{}
	r.agreed = to == detaching && (r.agreed || reply.Answer == disk.Accepted || reply.Answer == disk.AlreadyDetaching)
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
	r.again, r.refused = time.Time{}, time.Time{}
	switch {
	case reply.Answer == disk.NoInstance:
		return true, false
	case reply.Answer == disk.NoAnswer: // ECS may never get it
	case sent.Before(r.open()):
		r.again = r.open()
	case reply.Answer == disk.NotAttached, reply.Answer == disk.Elsewhere:
		return true, false
	case reply.Answer == disk.WrongState && len(d.Attachments) == 0:
		return r.offByState(sent, first)
	case reply.Answer == disk.Accepted, reply.Answer == disk.AlreadyDetaching:
		return r.ordered && !d.MultiAttach && later(d.Released, r.before), false
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
	r.refused, r.again = first, first.Add(disk.RequestLifetime)
	return r.agreed, !sent.Before(r.again)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// call judges the reads that follow a call to ECS, and forgets it. It is pure.
type call struct {
	instance disk.InstanceID
	begun    bool // ECS was seen at work on it
}

// Attached returns what says whether a read shows that ECS has attached a disk to an instance, as it was asked to. The error says why it
// won't: Pending, InUse, or the one of the reply.
func Attached(instance disk.InstanceID) Judge {
	return (&call{instance: instance}).attached
}

// Detached is Attached for a detach. That a read doesn't show the instance proves nothing yet (Record.off).
func Detached(instance disk.InstanceID) Judge {
	return (&call{instance: instance}).detached
}

func (c *call) attached(d disk.Disk, reply disk.Reply) (bool, error) {
	here := d.On(c.instance)
	switch {
	case here && d.State != disk.Attaching && d.State != disk.Detaching:
		return true, nil
	case d.MultiAttach && !here && d.State == disk.Detaching: // from others
	case d.State == disk.Detaching:
		return false, disk.Errorf(disk.Pending, "the disk is being detached from %s", disk.InstanceNames(d.Holders()))
	case d.State == disk.Attaching:
		c.begun = true
		return false, nil
	case d.State == disk.Attached && !d.MultiAttach && len(d.Attachments) > 0 && reply.Answer == disk.WrongState:
		return false, disk.Errorf(disk.InUse, "the disk is attached to %s", disk.InstanceNames(d.Holders()))
	case c.begun && d.State == disk.Available:
		return false, disk.Errorf(disk.Pending, "ECS began to attach the disk and gave it up")
	}
	return false, idle(d, reply)
}

func (c *call) detached(d disk.Disk, reply disk.Reply) (bool, error) {
	here, changing := d.On(c.instance), d.State == disk.Attaching || d.State == disk.Detaching
	shared := d.MultiAttach && len(d.Attachments) > 0 // one state speaks for all instances together
	switch {
	case !here && (!changing || shared):
		return true, nil
	case reply.Answer == disk.WrongState:
		return !changing, nil // what it can be detached from now
	case changing:
		c.begun = c.begun || d.State == disk.Detaching
		return false, nil
	case reply.Answer == disk.AlreadyDetaching, reply.Answer == disk.Elsewhere: // in time it is asked again: that was so then
		return reply.Age >= disk.RequestLifetime, nil
	case c.begun:
		return false, disk.Errorf(disk.Pending, "ECS began to detach the disk and gave it up")
	}
	return false, idle(d, reply)
}

// idle ends the wait for an ECS that doesn't seem to be at work on a disk: at once if nobody knows that it has the call.
func idle(d disk.Disk, reply disk.Reply) error {
	switch {
	case reply.Answer == disk.NoAnswer:
		return reply.Err
	case reply.Answer != disk.Accepted:
		return &disk.Error{Kind: disk.Pending, Err: fmt.Errorf("the disk is %s now: %w", d.State, reply.Err)}
	case reply.Age < disk.RequestLifetime:
		return nil
	}
	return disk.Errorf(disk.Pending, "ECS accepted the call %s ago, and the disk is still %s", reply.Age.Round(time.Second), d.State)
}
