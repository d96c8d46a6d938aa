package attachment

import (
	"fmt"
	"slices"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

const (
	// lag is for how long a change may not show that was asked for, by a call on its way to ECS and in reads that are behind. ECS
	// states no bound; the longest lag that its users report is that of devices in the guest, 10 s.
	lag = 10 * time.Second
	// slowestDetach is for how long ECS may detach a disk without showing it: twice the minute of DetachDisk's documentation.
	slowestDetach = 2 * time.Minute
	// longestRetry is more than csi-attacher lets pass between two calls for the same volume and node: its longest back-off is 5
	// minutes (--retry-interval-max).
	longestRetry = 6 * time.Minute
	// kept is for how long a Record is kept that nobody asks for: so long a detach may hang that reads don't show.
	kept = time.Hour
)

// phase is what this process has last made of an attachment.
type phase int

const (
	unknown   phase = iota
	attaching       // ECS may be attaching the disk
	attached        // a read has shown it attached
	detaching       // ECS may be detaching it
	detached        // a read has shown it detached
)

func (p phase) String() string {
	return [...]string{"unknown", "attaching", "attached", "detaching", "detached"}[p]
}

// Record is what this process knows of one disk and one instance. It is pure.
type Record struct {
	instance disk.InstanceID
	phase    phase
	since    time.Time // when it came to be in the phase

	// What the CO asks for, and this process has not settled.
	wanted      phase     // attached or detached; unknown if nothing
	asked       time.Time // when it was asked for first
	first, last time.Time // the same, or when the look of it changed; and when it was asked for last
	shown       bool      // the first read of the last such call showed it attached

	// The value of disk.HistoryTag that this process has set, and when.
	inUse    string
	marked   time.Time
	unmarked time.Time // when it was last asked to take the disk from the instance

	// The call that attaches or detaches the disk.
	before  *disk.Disk // a look at the disk as it was before the call had its effect
	begun   bool       // ECS was seen at work on it
	held    bool       // the instance was seen to hold the disk
	refused time.Time  // when ECS last said that there is nothing to detach
}

// NewRecord returns a Record of which nothing is known but how a read has just shown the disk.
func NewRecord(instance disk.InstanceID, d disk.Disk) *Record {
	r := &Record{instance: instance}
	r.remember(d)
	return r
}

// become notes what this process has made of the attachment.
func (r *Record) become(p phase, now time.Time) {
	r.phase, r.since = p, now
	if p == attached || p == detached {
		r.wanted = unknown
	}
}

// ask notes that the CO wants the disk attached, or detached.
func (r *Record) ask(wanted phase, now time.Time) {
	if r.wanted != wanted || now.Sub(r.last) > longestRetry {
		r.wanted, r.asked, r.first, r.shown = wanted, now, now, false
	}
	r.last = now
}

// look notes what the first read of a publish or an unpublish shows. If that has changed since the one before, or an instance has let
// go of the disk, another replica may have been at work.
func (r *Record) look(d disk.Disk, now time.Time) {
	here, released := d.On(r.instance), r.before != nil && r.before.Released != d.Released
	if r.wanted != unknown && (r.shown != here || released) {
		r.shown, r.first = here, now
	}
	r.remember(d)
}

// remember keeps what isLater needs of a look, if there was one.
func (r *Record) remember(d disk.Disk) {
	if d.State != "" {
		r.before = &disk.Disk{Attachments: d.Attachments, Released: d.Released}
	}
}

// begin notes that a call is made that goes by a look.
func (r *Record) begin(d disk.Disk) {
	r.begun, r.held = false, false
	r.remember(d)
}

// isLater says whether a look is later than the one that showed the disk as it was before the call, and not one that lags behind from
// before even that: ECS says with each disk when it was detached last, by its own clock. After lag none is so far behind.
func (r *Record) isLater(d disk.Disk, here bool, reply disk.Reply) bool {
	switch {
	case reply.Age >= lag:
		return true
	case r.before == nil || r.before.On(r.instance) == here:
		return false
	case here:
		return d.Released >= r.before.Released
	}
	return d.Released > r.before.Released
}

// Attached says whether a look shows that ECS has attached the disk, as it was asked to. The error says why it won't: Pending,
// InUse, or the one of the reply.
func (r *Record) Attached(d disk.Disk, reply disk.Reply) (bool, error) {
	here := d.On(r.instance)
	if !here {
		r.remember(d)
	}
	switch {
	case here && d.State != disk.Attaching && d.State != disk.Detaching:
		return r.isLater(d, true, reply), nil
	case d.MultiAttach && !here && d.State == disk.Detaching: // from others
	case d.State == disk.Detaching:
		return false, disk.Errorf(disk.Pending, "the disk is being detached from %s", disk.InstanceNames(d.Holders()))
	case d.State == disk.Attaching:
		r.begun = true
		return false, nil
	case d.State == disk.Attached && !d.MultiAttach && len(d.Attachments) > 0 && !mayBeHidden(reply):
		return false, disk.Errorf(disk.InUse, "the disk is attached to %s", disk.InstanceNames(d.Holders()))
	case r.begun && d.State == disk.Available:
		return false, disk.Errorf(disk.Pending, "ECS began to attach the disk and gave it up")
	}
	return false, idle(d, reply)
}

// Detached is Attached for a detach.
func (r *Record) Detached(d disk.Disk, reply disk.Reply) (bool, error) {
	here, shared := d.On(r.instance), isShared(d)
	if here {
		r.held = true
		r.remember(d)
	}
	switch {
	case !here && mayDetach(reply) && !r.isLater(d, false, reply):
		return false, nil
	case !here && shared && !r.held && !provesDetached(reply):
		return false, idle(d, reply)
	case !here && (shared || d.State != disk.Detaching && d.State != disk.Attaching):
		return true, nil
	case d.MultiAttach && reply.Answer == disk.AlreadyDetaching:
		return false, nil // the state of a disk for several instances doesn't show a detach from one
	case d.MultiAttach && d.State == disk.Attaching: // to another, it may be
	case d.State == disk.Attaching:
		return false, disk.Errorf(disk.Pending, "the disk is being attached, and can't be detached before that is done")
	case d.State == disk.Detaching:
		r.begun = true
		return false, nil
	case r.begun:
		return false, disk.Errorf(disk.Pending, "ECS began to detach the disk and gave it up")
	}
	return false, idle(d, reply)
}

// provesDetached says whether ECS's reply to a detach leaves no doubt that the disk is
// off, or will be. The state of a disk that others have speaks for all of them
// together, so it doesn't show that it is being attached, or detached.
func provesDetached(reply disk.Reply) bool {
	return slices.Contains([]disk.Answer{disk.Accepted, disk.NotAttached, disk.NoInstance}, reply.Answer)
}

// mayDetach says whether ECS may be at work on a detach, so that a look without the instance may be one from before the disk came to it.
func mayDetach(reply disk.Reply) bool {
	return slices.Contains([]disk.Answer{disk.Accepted, disk.NoAnswer, disk.AlreadyDetaching}, reply.Answer)
}

// provesUnheld says whether ECS's refusal to detach the disk shows that the instance does not have it. The state of a disk that others
// have is wrong as well while it is being attached to this one, for as long as that may take.
func (r *Record) provesUnheld(d disk.Disk, reply disk.Reply, now time.Time) bool {
	return reply.Answer == disk.NotAttached || reply.Answer == disk.WrongState && (!isShared(d) || now.Sub(r.first) >= slowestDetach)
}

// isShared says whether a look shows one state for all instances of the disk together.
func isShared(d disk.Disk) bool { return d.MultiAttach && len(d.Attachments) > 0 }

// mayBeHidden says whether ECS may be at work on a call without showing it.
func mayBeHidden(reply disk.Reply) bool {
	return (reply.Answer == disk.Accepted || reply.Answer == disk.NoAnswer) && reply.Age < lag
}

// idle ends the wait for an ECS that doesn't seem to be at work on a disk: at
// once if it has refused to be, else when reads can't lag any more.
func idle(d disk.Disk, reply disk.Reply) error {
	switch {
	case mayBeHidden(reply):
		return nil
	case reply.Answer == disk.Accepted:
		return disk.Errorf(disk.Pending, "ECS accepted the call %s ago, and the disk is still %s", reply.Age.Round(time.Second), d.State)
	case reply.Answer == disk.NoAnswer:
		return reply.Err
	}
	return &disk.Error{Kind: disk.Pending, Err: fmt.Errorf("the disk is %s now: %w", d.State, reply.Err)}
}
