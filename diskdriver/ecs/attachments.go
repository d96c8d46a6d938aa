package ecs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	sdkecs "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/instancequeue"
	"github.com/topodisk/topodisk/diskdriver/ecs/internal/deadline"
	"github.com/topodisk/topodisk/diskdriver/ecs/transport"
)

// idleTime is for how long a disk may look as if ECS had not begun with what it
// was asked for: reads lag behind.
const idleTime = 10 * time.Second

// busyCodes are the refusals that speak of other work on the instance.
var busyCodes = map[string]instancequeue.Limit{
	"InvalidOperation.Conflict":                        instancequeue.OfBoth,
	"OperationConflict.DisksAttachingParallellyExceed": instancequeue.OfAttaches,
	"DisksDetachingOnEcsExceeded":                      instancequeue.OfDetaches,
}

// stateCodes are the refusals that speak of the state of the disk or of its
// attachments, by verb. A read says which it is, and whether all is done.
var stateCodes = [...][]string{
	instancequeue.Attach: {wrongStateCode, "InvalidDisk.InUse", "DiskId.StatusNotSupported"},
	instancequeue.Detach: {wrongStateCode, "InvalidDisk.AlreadyDetached", "DependencyViolation", "InvalidInstanceId.NotFound",
		detachingCode},
}

// wrongStateCode is the refusal of what the disk's state doesn't allow: to detach
// a disk for several nodes that is being attached, among others, which its state
// doesn't show.
const wrongStateCode = "IncorrectDiskStatus"

// initializingCode is the refusal to attach a disk that was made a moment ago.
const initializingCode = "IncorrectDiskStatus.Initializing"

// detachingCode is the refusal to detach a disk that is being detached.
const detachingCode = "InvalidOperation.DiskDetachingFromThisEcs"

// Attach attaches a disk to an instance and returns the disk as a read shows
// it then, with its serial. A disk that is attached there already is success.
// With force a regional disk is taken from an instance of another zone.
//
// Calls for one instance queue up (package instancequeue). Pending: ECS is at work on it, or
// others are first; the same call later ends it. InUse: another instance holds
// the disk; nothing is taken from it. NodeFull: the instance takes no more.
// UnknownOutcome: ECS may or may not attach it.
func (c *Client) Attach(ctx context.Context, instance disk.InstanceID, id disk.ID, force bool) (disk.Disk, error) {
	o := &operation{client: c, action: transport.AttachDisk.Name, instance: instance, asked: instancequeue.Operation{Verb: instancequeue.Attach, Disk: id}}
	o.call = func() error {
		defer c.known.changed(id)
		_, err := transport.AttachDisk.SendInTurn(ctx, c.session, o.slot, func(r *sdkecs.AttachDiskRequest) {
			r.InstanceId, r.DiskId = string(instance), string(id)
			if force {
				r.Force = requests.NewBoolean(true)
			}
			if o.bound {
				r.DeleteWithInstance = requests.NewBoolean(true)
			}
		})
		return err
	}
	o.judge = o.judgeAttach
	if err := o.check(); err != nil {
		return disk.Disk{}, err
	}
	if err := c.settled(ctx, id); err != nil {
		return disk.Disk{}, o.failed(err)
	}
	d, err := o.run(ctx, wait{id: id, change: toAttach})
	if err != nil {
		return disk.Disk{}, err
	}
	return d, nil
}

// Detach detaches a disk from an instance, and returns the disk as a read has
// shown it when the instance didn't hold it any more, or no disk if ECS has
// said that there is no such one. The errors are those of Attach.
func (c *Client) Detach(ctx context.Context, instance disk.InstanceID, id disk.ID) (disk.Disk, error) {
	o := &operation{client: c, action: transport.DetachDisk.Name, instance: instance, asked: instancequeue.Operation{Verb: instancequeue.Detach, Disk: id}}
	o.call = func() error {
		defer c.known.changed(id)
		_, err := transport.DetachDisk.SendInTurn(ctx, c.session, o.slot, func(r *sdkecs.DetachDiskRequest) {
			r.InstanceId, r.DiskId = string(instance), string(id)
			if o.bound {
				r.DeleteWithInstance = requests.NewBoolean(true)
			}
		})
		return err
	}
	o.judge = o.judgeDetach
	if err := o.check(); err != nil {
		return disk.Disk{}, err
	}
	c.known.over(id)
	d, err := o.run(ctx, wait{id: id, change: toDetach})
	if disk.KindOf(err) == disk.NotFound {
		return disk.Disk{}, nil
	}
	return d, err
}

// settled waits until a disk that this process has just made is there. Of one
// that was made long ago ECS's answer to the next call says more.
func (c *Client) settled(ctx context.Context, id disk.ID) error {
	w := c.known.underWay(id)
	if w.change != toSettle || time.Since(w.since) > idleTime {
		return nil
	}
	_, err := c.await(ctx, w, func(d disk.Disk) (bool, error) { return d.State != disk.Creating, nil })
	return err
}

// operation is one attach or detach from its place in the queue to its end.
type operation struct {
	client   *Client
	action   string
	instance disk.InstanceID
	asked    instancequeue.Operation
	call     func() error
	judge    func(disk.Disk) (done bool, err error)

	slot     *instancequeue.Slot
	answered time.Time     // when ECS accepted the call; zero if that is not known
	reply    time.Duration // how long that took
	outcome  error         // of the call, where a read has the last word
	begun    bool          // ECS was seen at work on it
	shown    bool          // the instance was seen to hold the disk
	ended    bool          // a read has settled it, one way or the other
	bound    bool          // ECS wants the disk to be deleted with its instance

	// before is a look at the disk as it was before ECS did what it was asked for; nil if there was none.
	before *disk.Disk
}

// boundCode is the refusal to attach or detach a disk that lives and dies with
// its instance, an elastic ephemeral one, unless the call says so. No other
// disk is ever told to go with its instance.
const boundCode = "InvalidParameter.DeleteWithInstance"

// check refuses what can't be the ID of a disk or an instance.
func (o *operation) check() error {
	for _, id := range []string{string(o.asked.Disk), string(o.instance)} {
		if !possibleID.MatchString(id) {
			return &disk.Error{Op: o.action, Kind: disk.NotFound, Err: fmt.Errorf("%q is not the ID of a disk or an instance", id)}
		}
	}
	return nil
}

// run waits for the slot, asks, and waits until ECS is done.
func (o *operation) run(ctx context.Context, w wait) (disk.Disk, error) {
	s, err := o.client.queues.Enter(o.instance, o.asked)
	if err != nil {
		return disk.Disk{}, o.failed(err)
	}
	o.slot = s
	if d, ok := o.client.known.shown(o.asked.Disk); ok {
		o.remember(d)
	}
	if _, sent := s.Sent(); !sent {
		if err := o.ask(ctx); err != nil {
			s.Done()
			return disk.Disk{}, o.failed(err)
		}
		w.since, w.reply = o.answered, o.reply
	}
	d, err := o.client.await(ctx, w, o.seen)
	if err == nil || o.ended || disk.KindOf(err) == disk.NotFound {
		s.Done()
	} else {
		s.Leave()
		err = o.unfinished(err)
	}
	if err != nil {
		return d, o.failed(err)
	}
	return d, nil
}

// ask makes the call when the instance has room. Without an error ECS may be at
// work, and a read has the last word.
func (o *operation) ask(ctx context.Context) error {
	patient, cancel := deadline.BeforeAnswer(ctx)
	defer cancel()
	for pause := shortestPause; ; {
		if err := o.slot.Wait(patient); err != nil {
			return err
		}
		err := o.call()
		switch code := transport.CodeOf(err); {
		case err == nil:
			o.answered, o.reply = time.Now(), o.age()
			o.slot.Accepted()
			return nil
		case errors.Is(err, transport.ErrNotReady):
		case isBusy(code):
			o.slot.Refused(busyCodes[code])
		case code == boundCode && !o.bound:
			o.bound = true
			o.slot.Unsent()
		case code == initializingCode: // it ends by itself, and no read shows it
			o.slot.Unsent()
			select {
			case <-time.After(pause):
				pause = min(2*pause, longestPause)
			case <-patient.Done():
				return err
			}
		case slices.Contains(stateCodes[o.asked.Verb], code), disk.KindOf(err) == disk.UnknownOutcome:
			o.outcome = err
			return nil
		default:
			return err
		}
	}
}

func isBusy(code string) bool {
	_, ok := busyCodes[code]
	return ok
}

// seen judges what a read shows, and notes what that says of the slot.
func (o *operation) seen(d disk.Disk) (bool, error) {
	done, err := o.judge(d)
	if o.begun {
		o.slot.Accepted()
	}
	o.ended = done || err != nil
	return done, err
}

// remember keeps a look that shows the disk as it was before.
func (o *operation) remember(d disk.Disk) {
	if holds(d, o.instance) == (o.asked.Verb == instancequeue.Detach) {
		o.before = &d
	}
}

// isLater says whether a look is later than the one that showed the disk as it was before, and not one that lags behind from
// before even that: ECS says with each disk when it was detached last, by its own clock. After idleTime none lags so far.
func (o *operation) isLater(d disk.Disk) bool {
	switch {
	case o.age() >= idleTime:
		return true
	case o.before == nil:
		return false
	case o.asked.Verb == instancequeue.Attach:
		return d.Released >= o.before.Released
	}
	return d.Released > o.before.Released
}

func (o *operation) judgeAttach(d disk.Disk) (bool, error) {
	o.remember(d)
	switch here := holds(d, o.instance); {
	case here && d.State != disk.Attaching && d.State != disk.Detaching && !o.isLater(d):
		return false, nil
	case here && d.State != disk.Attaching && d.State != disk.Detaching:
		return true, nil
	case d.MultiAttach && !here && d.State == disk.Detaching: // from others
	case d.State == disk.Detaching:
		return false, disk.Errorf(disk.Pending, "the disk is being detached from %s", holders(d))
	case d.State == disk.Attaching:
		o.begun = true
		return false, nil
	case d.State == disk.Attached && !d.MultiAttach && len(d.Attachments) > 0 && !o.mayBeAt():
		return false, disk.Errorf(disk.InUse, "the disk is attached to %s", holders(d))
	case o.begun && d.State == disk.Available:
		return false, disk.Errorf(disk.Pending, "ECS began to attach the disk and gave it up")
	}
	return false, o.idle(d)
}

func (o *operation) judgeDetach(d disk.Disk) (bool, error) {
	here, shared := holds(d, o.instance), d.MultiAttach && len(d.Attachments) > 0
	o.shown = o.shown || here
	o.remember(d)
	switch {
	case !here && o.outcome == nil && !o.isLater(d):
		return false, nil
	case !here && shared && !o.shown && !o.isOff():
		return false, o.idle(d)
	case !here && (shared || d.State != disk.Detaching && d.State != disk.Attaching):
		return true, nil
	case d.MultiAttach && transport.CodeOf(o.outcome) == detachingCode:
		return false, nil // the state of a disk for several nodes doesn't show a detach from one
	case d.MultiAttach && d.State == disk.Attaching: // to another, it may be
	case d.State == disk.Attaching:
		return false, disk.Errorf(disk.Pending, "the disk is being attached, and can't be detached before that is done")
	case d.State == disk.Detaching:
		o.begun = true
		return false, nil
	case o.begun:
		return false, disk.Errorf(disk.Pending, "ECS began to detach the disk and gave it up")
	}
	return false, o.idle(d)
}

// age is how long ago the call was sent.
func (o *operation) age() time.Duration {
	sent, _ := o.slot.Sent()
	return time.Since(sent)
}

// isOff says whether ECS's answer to a detach leaves no doubt that the disk is
// off, or will be. The state of a disk that others have speaks for all of them
// together, so it doesn't show that it is being attached, or detached.
func (o *operation) isOff() bool {
	code := transport.CodeOf(o.outcome)
	return !o.doubtful() && code != wrongStateCode && code != detachingCode
}

// idle ends the wait for an ECS that doesn't seem to be at work on a disk: at
// once if it has refused to be, else when reads can't lag any more.
func (o *operation) idle(d disk.Disk) error {
	switch age := o.age(); {
	case o.outcome != nil && !o.doubtful():
		return &disk.Error{Kind: disk.Pending, Err: fmt.Errorf("the disk is %s now: %w", d.State, o.outcome)}
	case age < idleTime:
		return nil
	case o.outcome != nil:
		return o.outcome
	default:
		return disk.Errorf(disk.Pending, "ECS accepted the call %s ago, and the disk is still %s", age.Round(time.Second), d.State)
	}
}

// mayBeAt says whether ECS may be at work on the call and reads not show it yet.
func (o *operation) mayBeAt() bool {
	return (o.outcome == nil || o.doubtful()) && o.age() < idleTime
}

// doubtful says whether nobody knows if ECS has accepted the call.
func (o *operation) doubtful() bool { return disk.KindOf(o.outcome) == disk.UnknownOutcome }

// unfinished is the error when the caller's time is over before a read has
// settled it.
func (o *operation) unfinished(err error) error {
	switch {
	case disk.KindOf(err) != disk.Pending && !transient(err):
		return err // reads are refused
	case o.outcome == nil || o.begun:
		return &disk.Error{Kind: disk.Pending, Err: fmt.Errorf("ECS is at work on it: %w", err)}
	case o.doubtful():
		return o.outcome
	}
	return &disk.Error{Kind: disk.Pending, Err: fmt.Errorf("%w (%w)", o.outcome, err)}
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

// holds says whether an instance has a disk, or is about to let it go.
func holds(d disk.Disk, instance disk.InstanceID) bool {
	return slices.ContainsFunc(d.Attachments, func(a disk.Attachment) bool { return a.Instance == instance })
}

// holders names the instances that have a disk.
func holders(d disk.Disk) string {
	var names []string
	for _, a := range d.Attachments {
		names = append(names, string(a.Instance))
	}
	if len(names) == 0 {
		return "an instance that ECS doesn't name"
	}
	return strings.Join(names, ", ")
}
