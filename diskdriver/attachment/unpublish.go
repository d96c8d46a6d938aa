package attachment

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/internal/deadline"
	"github.com/topodisk/topodisk/internal/sleep"
)

// firstPause and lastPause bound the pauses between detaches that prove nothing, but for the first.
const (
	firstPause = 500 * time.Millisecond
	lastPause  = 8 * time.Second
)

// Unpublish detaches a disk from an instance, or from all if none is named. It is nil only when ECS has shown, or said, that the
// instance hasn't the disk, be the instance running, stopped or gone, and no call can attach it any more. NotFound: the disk doesn't
// exist.
//
// Check has an error for a disk that is another's, which is left alone. It is not asked of a disk that this process has published, nor if no
// read shows the disk, or reads fail: ECS, and the policy of the keys, decide then, for a Pod must be able to leave its node.
func (a *Attacher) Unpublish(ctx context.Context, id disk.ID, instance disk.InstanceID, check func(disk.Disk) error) error {
	a.table.begin(ctx, id, instance, detached)
	ctx, leave, err := a.table.admit(ctx, detached)
	if err != nil {
		return err
	}
	defer leave()
	if instance != "" && a.table.known(id, instance).phase == unknown && len(a.table.mayHave(id)) == 0 {
		if d, err := a.ecs.GetCached(ctx, id); err == nil {
			if err := check(d); err != nil {
				return err
			}
		}
	}
	var d disk.Disk
	if instance == "" {
		d, err = a.takeOffAll(ctx, id, check)
	} else {
		d, err = a.takeOff(ctx, id, instance)
	}
	if err == nil {
		d.ID = id // which an answer without a read doesn't have
		err = a.untag(ctx, d, instance)
	}
	if err == nil || disk.KindOf(err) == disk.NotFound { // which is success: nobody asks again
		a.table.change(id, instance, func(r *Record, _ time.Time) { r.wanted = unknown })
	}
	return err
}

// takeOff detaches a disk from an instance, and returns the disk as it was seen last. ECS is not asked for one that this process has
// proved to be off, or attached to another instance, unless a read shows it that is not known to be older: somebody may have attached it by hand.
func (a *Attacher) takeOff(ctx context.Context, id disk.ID, instance disk.InstanceID) (disk.Disk, error) {
	if known := a.table.known(id, instance); known.phase == detached {
		d, err := a.ecs.Get(ctx, id)
		if err != nil || !d.On(instance) || known.ended != "" && !a.table.current(d).On(instance) {
			return d, nil //nolint:nilerr // whatever became of the read
		}
	}
	if d, elsewhere, err := a.isElsewhere(ctx, id, instance); elsewhere || err != nil {
		return d, err
	}
	for wait := time.Duration(0); ; wait = min(2*wait+firstPause, lastPause) {
		if err := pause(ctx, latest(a.table.known(id, instance).askAgain, time.Now().Add(wait))); err != nil {
			return disk.Disk{}, err
		}
		d, proved, doubtful, err := a.detach(ctx, id, instance)
		if doubtful && err == nil {
			d, err = a.markAndRead(ctx, d)
			proved = err == nil && len(d.Attachments) == 0 && d.State != disk.Attaching && d.State != disk.Detaching
		}
		if proved && d.Tags == nil { // ECS's answer is enough
			if read, err := a.ecs.GetCached(ctx, id); err == nil {
				d = read
			}
		}
		if proved {
			a.table.detach(d, instance)
		}
		if proved || err != nil {
			return d, err
		}
	}
}

// isElsewhere says whether a read shows the disk where this process has attached it, which is not this instance. It is read again once nothing
// can arrive any more, for the other instance may have lost it to an attach that did.
func (a *Attacher) isElsewhere(ctx context.Context, id disk.ID, instance disk.InstanceID) (d disk.Disk, is bool, err error) {
	known := a.table.known(id, instance)
	if known.phase != unknown || len(a.table.mayHave(id)) == 0 {
		return d, false, nil
	}
	for {
		closed := !time.Now().Before(known.open())
		d, err = a.ecs.Get(ctx, id)
		if err != nil || !a.table.hasElsewhere(d, instance) {
			return d, false, nil //nolint:nilerr // ECS is asked then
		}
		if closed {
			return d, true, nil
		}
		if err := pause(ctx, known.open()); err != nil {
			return d, false, err
		}
	}
}

// pause waits for what may yet take effect. Pending: the caller's time is over before.
func pause(ctx context.Context, until time.Time) error {
	limited, cancel := deadline.BeforeAnswer(ctx)
	defer cancel()
	if wait := time.Until(until); wait > 0 && sleep.For(limited, wait) != nil {
		return disk.Errorf(disk.Pending, "ECS is asked again in %s: a request that was sent before may reach it until then", wait.Round(time.Second))
	}
	return nil
}

// detach asks ECS to detach a disk from an instance, and says whether it is proved to be off (Record.off).
func (a *Attacher) detach(ctx context.Context, id disk.ID, instance disk.InstanceID) (d disk.Disk, proved, doubtful bool, err error) {
	reply := disk.Reply{Answer: disk.NoAnswer} // unless the call returns
	err = &disk.Error{Kind: disk.UnknownOutcome}
	defer func() {
		a.table.change(id, instance, func(r *Record, now time.Time) {
			if r.sent(detaching, reply, now); err == nil {
				proved, doubtful = r.off(d, reply, now)
			}
		})
	}()
	d, reply, err = a.ecs.Detach(ctx, instance, id)
	return d, false, false, err
}

// takeOffAll detaches a disk from all instances: those that a read shows, and those that this process knows of, until a read that is
// later than all calls of other replicas shows none.
func (a *Attacher) takeOffAll(ctx context.Context, id disk.ID, check func(disk.Disk) error) (disk.Disk, error) {
	d, err := a.ecs.Get(ctx, id)
	if err == nil {
		err = check(d)
	}
	for later := false; ; {
		if err == nil && len(d.Attachments) == 0 && (d.State == disk.Attaching || d.State == disk.Detaching || d.State == disk.Attached) {
			d, err = a.await(ctx, id, func(d disk.Disk) (bool, error) { return len(d.Attachments) > 0 || d.State == disk.Available, nil })
			later = false
		}
		if err != nil {
			return d, a.confirmMissing(ctx, id, err)
		}
		holders := append(a.table.current(d).Holders(), a.table.mayHave(id)...)
		if later && len(holders) == 0 {
			return d, nil
		}
		slices.Sort(holders)
		for _, instance := range slices.Compact(holders) {
			if _, err := a.takeOff(ctx, id, instance); err != nil {
				return d, err
			}
		}
		known := a.table.known(id, "")
		if err := pause(ctx, known.open()); err != nil {
			return d, err
		}
		d, err = a.markAndRead(ctx, d)
		later = true
	}
}

// readers are the instances that may not write to a disk, by its tags.
func readers(d disk.Disk) (all []disk.InstanceID) {
	for key := range d.Tags {
		if reader, ok := strings.CutPrefix(key, disk.ReadOnlyTag("")); ok {
			all = append(all, disk.InstanceID(reader))
		}
	}
	return all
}
