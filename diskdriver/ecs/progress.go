package ecs

import (
	"fmt"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// progress judges the reads that follow a call that attaches or detaches a disk, with ECS's reply to it. It is pure.
type progress struct {
	instance disk.InstanceID
	begun    bool // ECS was seen at work on it
}

// attached says whether a read shows that ECS has attached the disk, as it was asked to. The error says why it won't: Pending, InUse, or
// that of the reply.
func (p *progress) attached(d disk.Disk, reply disk.Reply) (bool, error) {
	here := d.On(p.instance)
	switch {
	case here && d.State != disk.Attaching && d.State != disk.Detaching:
		return true, nil
	case d.MultiAttach && !here && d.State == disk.Detaching: // from others
	case d.State == disk.Detaching:
		return false, disk.Errorf(disk.Pending, "the disk is being detached from %s", disk.InstanceNames(d.Holders()))
	case d.State == disk.Attaching:
		p.begun = true
		return false, nil
	case d.State == disk.Attached && !d.MultiAttach && len(d.Attachments) > 0 && reply.Answer == disk.WrongState:
		return false, disk.Errorf(disk.InUse, "the disk is attached to %s", disk.InstanceNames(d.Holders()))
	case p.begun && d.State == disk.Available:
		return false, disk.Errorf(disk.Pending, "ECS began to attach the disk and gave it up")
	}
	return false, idle(d, reply)
}

// detached is attached for a detach. That a read doesn't show the instance proves nothing yet (attachment.Record).
func (p *progress) detached(d disk.Disk, reply disk.Reply) (bool, error) {
	here, changing := d.On(p.instance), d.State == disk.Attaching || d.State == disk.Detaching
	shared := d.MultiAttach && len(d.Attachments) > 0 // one state speaks for all instances together
	switch {
	case !here && (!changing || shared):
		return true, nil
	case reply.Answer == disk.WrongState:
		return !changing, nil // what it can be detached from now
	case changing:
		p.begun = p.begun || d.State == disk.Detaching
		return false, nil
	case reply.Answer == disk.AlreadyDetaching, reply.Answer == disk.Elsewhere: // in time it is asked again: that was so then
		return reply.Age >= disk.RequestLifetime, nil
	case p.begun:
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
