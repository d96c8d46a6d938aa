package ecs

import (
	"context"
	"errors"
	"fmt"
	"time"

	sdkecs "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/batch"
	"github.com/topodisk/topodisk/diskdriver/ecs/instancequeue"
	"github.com/topodisk/topodisk/diskdriver/ecs/transport"
	"github.com/topodisk/topodisk/diskdriver/internal/deadline"
	"github.com/topodisk/topodisk/internal/sleep"
)

// busyCodes are the refusals that speak of other work on the instance.
var busyCodes = map[string]instancequeue.Limit{
	"InvalidOperation.Conflict":                        instancequeue.OfBoth,
	"OperationConflict.DisksAttachingParallellyExceed": instancequeue.OfAttaches,
	"DisksDetachingOnEcsExceeded":                      instancequeue.OfDetaches,
}

// refusals are those after which a read has the last word, by verb: what each code says of the disk or its instance.
var refusals = [...]map[string]disk.Answer{
	instancequeue.Attach: {"IncorrectDiskStatus": disk.WrongState, "InvalidDisk.InUse": disk.WrongState, "DiskId.StatusNotSupported": disk.WrongState},
	instancequeue.Detach: {
		"IncorrectDiskStatus": disk.WrongState, "InvalidOperation.DiskDetachingFromThisEcs": disk.AlreadyDetaching,
		"InvalidDisk.AlreadyDetached": disk.NotAttached, "DependencyViolation": disk.Elsewhere, "InvalidInstanceId.NotFound": disk.NoInstance,
	},
}

// firstPause and lastPause bound the pauses between attaches of a disk that ECS
// has not finished making.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
)

// initializingCode is the refusal to attach a disk that was made a moment ago.
const initializingCode = "IncorrectDiskStatus.Initializing"

// boundCode is the refusal to attach or detach a disk that lives and dies with
// its instance, an elastic ephemeral one, unless the call says so. No other
// disk is ever told to go with its instance.
const boundCode = "InvalidParameter.DeleteWithInstance"

// settleTime is for how long a disk that was just made is waited for before it is attached. After that ECS's answer to the call says
// more.
const settleTime = 10 * time.Second

// noAnswer is the reply to a call that has not returned.
var noAnswer = disk.Reply{Answer: disk.NoAnswer, Err: disk.Errorf(disk.UnknownOutcome, "whether ECS has the call is not known")}

// Await reads a disk until seen is done with it (batch.Disks.Await). The reads
// follow the change that this process has begun, if there is one.
func (c *Client) Await(ctx context.Context, id disk.ID, seen func(disk.Disk) (done bool, err error)) (disk.Disk, error) {
	if !possibleID.MatchString(string(id)) {
		return disk.Disk{}, notAnID(id)
	}
	return c.reads.Await(ctx, c.recent.UnderWay(id), seen)
}

// Attach asks ECS to attach a disk to an instance, and reads the disk until one shows what has come of that (progress); it returns the disk
// as it was seen last, and ECS's reply. With force a regional disk is taken from an instance of another zone.
//
// Calls for one instance queue up (package instancequeue). A call that ECS is at
// work on already is not made again. Pending: ECS is at work on it, or others are
// first; the same call later ends it. InUse: another instance has it. NodeFull: the instance takes no more.
// UnknownOutcome: ECS may or may not attach it.
func (c *Client) Attach(ctx context.Context, instance disk.InstanceID, id disk.ID, force bool) (disk.Disk, disk.Reply, error) {
	o := c.attaching(ctx, instance, id, force)
	if err := o.check(); err != nil {
		return disk.Disk{}, disk.Reply{}, err
	}
	if err := c.settled(ctx, id); err != nil {
		return disk.Disk{}, disk.Reply{}, o.failed(err)
	}
	return o.run(ctx, batch.Change{Disk: id, Kind: batch.Attach})
}

// attaching returns the operation that Attach runs.
func (c *Client) attaching(ctx context.Context, instance disk.InstanceID, id disk.ID, force bool) *operation {
	o := &operation{client: c, action: transport.AttachDisk.Name, instance: instance, judge: (&progress{instance: instance}).attached,
		asked: instancequeue.Operation{Verb: instancequeue.Attach, Disk: id}}
	o.call = func() error {
		_, err := transport.AttachDisk.Send(ctx, c.session.Admitted(o.slot), func(r *sdkecs.AttachDiskRequest) {
			r.InstanceId, r.DiskId, r.Force, r.DeleteWithInstance = string(instance), string(id), trueOrUnset(force), trueOrUnset(o.bound)
		})
		return err
	}
	return o
}

// Detach asks ECS to detach a disk from an instance, and else is Attach. NotFound: ECS has answered that there is no such disk. After the
// answer that no instance has the disk, or that there is no such instance, it isn't read, and nothing but its ID is returned.
func (c *Client) Detach(ctx context.Context, instance disk.InstanceID, id disk.ID) (disk.Disk, disk.Reply, error) {
	o := &operation{client: c, action: transport.DetachDisk.Name, instance: instance, judge: (&progress{instance: instance}).detached,
		asked: instancequeue.Operation{Verb: instancequeue.Detach, Disk: id}}
	o.call = func() error {
		_, err := transport.DetachDisk.Send(ctx, c.session.Admitted(o.slot), func(r *sdkecs.DetachDiskRequest) {
			r.InstanceId, r.DiskId, r.DeleteWithInstance = string(instance), string(id), trueOrUnset(o.bound)
		})
		return err
	}
	if err := o.check(); err != nil {
		return disk.Disk{}, disk.Reply{}, err
	}
	c.recent.End(id)
	return o.run(ctx, batch.Change{Disk: id, Kind: batch.Detach})
}

// settled waits until a disk that this process has just made is there. Of one that reads don't show any more ECS's answer to the attach says
// more.
func (c *Client) settled(ctx context.Context, id disk.ID) error {
	w := c.recent.UnderWay(id)
	if w.Kind != batch.Create || time.Since(w.Since) > settleTime {
		return nil
	}
	_, err := c.reads.Await(ctx, w, func(d disk.Disk) (bool, error) { return d.State != disk.Creating, nil })
	if disk.KindOf(err) == disk.NotFound {
		return nil
	}
	return err
}

// operation is one attach or detach from its position in the queue to its end.
type operation struct {
	client   *Client
	action   string
	instance disk.InstanceID
	asked    instancequeue.Operation
	call     func() error
	judge    func(disk.Disk, disk.Reply) (done bool, err error) // of progress

	slot       *instancequeue.Slot
	acceptedAt time.Time     // when ECS accepted the call; zero if that is not known
	took       time.Duration // from the call to its reply
	ended      bool          // a read or a refusal has settled it, one way or the other
	bound      bool          // ECS wants the disk to be deleted with its instance
	pause      time.Duration // the last one for a disk that ECS has not finished making
}

// check refuses what can't be the ID of a disk or an instance.
func (o *operation) check() error {
	for _, id := range []string{string(o.asked.Disk), string(o.instance)} {
		if !possibleID.MatchString(id) {
			return &disk.Error{Op: o.action, Kind: disk.NotFound, Err: fmt.Errorf("%q is not the ID of a disk or an instance", id)}
		}
	}
	return nil
}

// run waits for the slot, makes the call when the instance has room, and waits until a read shows that ECS is done.
func (o *operation) run(ctx context.Context, w batch.Change) (disk.Disk, disk.Reply, error) {
	s, err := o.client.queues.Enter(o.instance, o.asked)
	if err != nil {
		return disk.Disk{}, disk.Reply{}, o.failed(err)
	}
	o.slot = s
	defer o.giveBack() // after a panic, too: else nobody gets the slot again
	if _, sent := s.Sent(); !sent {
		limited, cancel := deadline.BeforeAnswer(ctx)
		defer cancel()
		for again := true; again && err == nil; {
			before := s.Reply
			if err = s.Wait(limited); err == nil {
				s.Reply = noAnswer
				again, err = o.answered(limited, before, o.call())
			}
		}
		if err != nil {
			o.ended = true
			return disk.Disk{}, s.Reply, o.failed(err)
		}
		w.Since, w.Reply = o.acceptedAt, o.took
	}
	if s.Reply.Answer == disk.NotAttached || s.Reply.Answer == disk.NoInstance {
		o.ended = true
		return disk.Disk{ID: o.asked.Disk}, o.reply(), nil
	}
	d, err := o.client.reads.Await(ctx, w, o.seen)
	reply := o.reply()
	settled := o.ended
	if disk.KindOf(err) == disk.NotFound { // which a read doesn't prove, and none may ever settle it: the next call has ECS's answer
		err, o.ended = &disk.Error{Kind: disk.Pending, Err: err}, true
	}
	switch {
	case err == nil:
		return d, reply, nil
	case !settled:
		err = o.unfinished(err)
	}
	return disk.Disk{}, reply, o.failed(err)
}

// giveBack ends the operation's share of the instance, or leaves it to the same operation if ECS may be at work.
func (o *operation) giveBack() {
	if o.ended {
		o.slot.Done()
	} else {
		o.slot.Leave()
	}
}

// answered notes ECS's answer to the call, and says whether to make it again when the instance has room. If not, and without an error,
// ECS may be at work, and a read has the last word.
func (o *operation) answered(ctx context.Context, before disk.Reply, err error) (again bool, failed error) {
	o.client.recent.Changed(o.asked.Disk)
	code := transport.CodeOf(err)
	limit, busy := busyCodes[code]
	answer, judged := refusals[o.asked.Verb][code]
	switch {
	case err == nil:
		o.acceptedAt, o.took = time.Now(), o.age()
		o.slot.Reply = disk.Reply{Answer: disk.Accepted}
		o.slot.Accepted()
		return false, nil
	case errors.Is(err, transport.ErrNotAdmitted):
		o.slot.Reply = before
		return true, nil
	case busy:
		o.slot.Reply = disk.Reply{Answer: disk.Refused, Err: err}
		o.slot.Refused(limit)
		return true, nil
	case code == boundCode && !o.bound:
		o.slot.Reply, o.bound = before, true
		o.slot.Unsent()
		return true, nil
	case code == initializingCode: // it ends by itself, and no read shows it
		o.slot.Reply = before
		o.slot.Unsent()
		o.pause = min(max(2*o.pause, firstPause), lastPause)
		if sleep.For(ctx, o.pause) != nil {
			return false, err
		}
		return true, nil
	case judged:
		o.slot.Reply = disk.Reply{Answer: answer, Err: err}
		return false, nil
	case disk.KindOf(err) == disk.UnknownOutcome:
		o.slot.Reply = disk.Reply{Answer: disk.NoAnswer, Err: err}
		return false, nil
	}
	o.slot.Reply = disk.Reply{Answer: settledBy(err), Err: err}
	return false, err
}

// settledBy is the answer of a call whose error no read follows. A code that speaks of a state which the tables don't have (Unexpected) tells
// nothing of the attachment, though a create that ends so has made nothing (creation.AnswerOf).
func settledBy(err error) disk.Answer {
	switch disk.KindOf(err) {
	case disk.Unexpected:
		return disk.NoAnswer
	case disk.Throttled, disk.Unreachable:
		return disk.Unsent
	}
	return disk.Refused
}

// reply is ECS's, with its age.
func (o *operation) reply() disk.Reply {
	reply := o.slot.Reply
	reply.Age = o.age()
	return reply
}

// seen judges what a read shows, and notes what that says of the slot.
func (o *operation) seen(d disk.Disk) (bool, error) {
	done, err := o.judge(d, o.reply())
	if d.State == [...]disk.State{instancequeue.Attach: disk.Attaching, instancequeue.Detach: disk.Detaching}[o.asked.Verb] {
		o.slot.Accepted()
	}
	o.ended = done || err != nil
	return done, err
}

// age is how long ago the call was sent.
func (o *operation) age() time.Duration {
	sent, _ := o.slot.Sent()
	return time.Since(sent)
}

// unfinished is the error when the caller's time is over, or reads are refused,
// before one has settled it. A refused read does not end what ECS may be at work on.
func (o *operation) unfinished(err error) error {
	switch {
	case o.slot.Running():
		return &disk.Error{Kind: disk.Pending, Err: fmt.Errorf("ECS is at work on it: %w", err)}
	case o.slot.Reply.Answer == disk.NoAnswer:
		return o.slot.Reply.Err
	}
	return &disk.Error{Kind: disk.Pending, Err: fmt.Errorf("%w (%w)", o.slot.Reply.Err, err)}
}

// failed returns an error as that of the operation.
func (o *operation) failed(err error) error {
	e := &disk.Error{Op: o.action, Disk: o.asked.Disk, Instance: o.instance, Kind: disk.KindOf(err), Err: err}
	var inner *disk.Error
	if errors.As(err, &inner) {
		e.RequestID = inner.RequestID
		if inner == err { //nolint:errorlint // an error around it says more, and is kept
			e.Err = inner.Err
		}
	}
	return e
}
