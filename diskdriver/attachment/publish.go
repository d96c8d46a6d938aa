package attachment

import (
	"context"
	"fmt"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// Attacher attaches and detaches disks of one account.
type Attacher struct {
	ecs   ECS
	table *Table
}

// New returns an Attacher. All accounts share a Table.
func New(ecs ECS, table *Table) *Attacher { return &Attacher{ecs: ecs, table: table} }

// Publication is what a publish asks for.
type Publication struct {
	Disk     disk.ID
	Instance disk.InstanceID
	Known    disk.Instance // what is known of the instance
	Shared   bool          // other instances may have the disk at the same time
	ReadOnly bool
	Force    bool                  // a regional disk may be taken from an instance of another zone
	Check    func(disk.Disk) error // says why the disk can't be used as asked; nil: it always can
}

// Publish attaches a disk to an instance, and returns it when ECS shows the attachment, with what it was before: disk.HistoryNew only if
// this attachment is proven to be its first. InUse: another instance has it, and keeps it. Mismatch: it is published to the instance with
// another ReadOnly.
//
// ECS attaches every disk for reading and writing. That an instance must not write, and that the disk is not new any more, is
// recorded in tags of the disk before it is attached.
func (a *Attacher) Publish(ctx context.Context, p Publication) (disk.Disk, disk.History, error) {
	a.table.begin(ctx, p.Disk, p.Instance, attached)
	ctx, leave, err := a.table.admit(ctx, attached)
	if err != nil {
		return disk.Disk{}, "", err
	}
	defer leave()
	switch known := a.table.known(p.Disk, p.Instance); {
	case known.phase == attached && known.readOnly != p.ReadOnly:
		return disk.Disk{}, "", p.mismatch()
	case known.phase == detaching: // it can't be taken back
		if _, err := a.takeOff(ctx, p.Disk, p.Instance); err != nil {
			return disk.Disk{}, "", err
		}
	}
	d, next, err := a.plan(ctx, p)
	if err != nil {
		return d, "", err
	}
	turned := false
	if next != done {
		if turned, err = a.fence(ctx, d, p); err != nil {
			return d, "", err
		}
		accepted := false
		if d, accepted, err = a.attach(ctx, d, p, next == forceAttach); err != nil {
			return d, "", err
		}
		turned = turned || accepted && a.table.isUnused(p.Disk)
	}
	d, err = a.confirm(ctx, d, p, next != done)
	if err == nil {
		err = p.compatible(d)
	}
	if err != nil {
		return d, "", err
	}
	return d, a.history(d, p.Instance, turned && next != forceAttach), nil
}

// plan returns the next step, and the disk as it was seen then. It waits for what ends by itself.
func (a *Attacher) plan(ctx context.Context, p Publication) (d disk.Disk, next step, err error) {
	d, err = a.ecs.GetCached(ctx, p.Disk)
	if err == nil && len(d.Attachments) > 0 { // only ECS may say that it is published already
		d, err = a.ecs.Get(ctx, p.Disk)
	}
	if err != nil {
		return d, done, a.confirmMissing(ctx, p.Disk, err)
	}
	if err := p.usable(d); err != nil {
		return d, done, err
	}
	next, err = a.table.publishes(d, p)
	if err == nil && next == attach && (d.On(p.Instance) || a.table.known(p.Disk, p.Instance).phase == attached) { // is it so still?
		if d, err = a.markAndRead(ctx, d); err == nil {
			next, err = a.table.publishes(d, p)
		}
		if err == nil && next == attach && d.On(p.Instance) {
			err = p.compatible(d)
		}
	}
	if err == nil && next == await {
		d, err = a.await(ctx, p.Disk, func(d disk.Disk) (bool, error) {
			next, err = a.table.publishes(d, p)
			return next != await, err
		})
	}
	return d, next, err
}

// confirmMissing returns the error of a read. That reads don't show a disk proves nothing, so ECS is asked by a call that changes nothing.
func (a *Attacher) confirmMissing(ctx context.Context, id disk.ID, err error) error {
	if disk.KindOf(err) != disk.NotFound || disk.KindOf(a.ecs.TryMove(ctx, id, disk.Move{Level: "PL1"})) == disk.NotFound {
		return err
	}
	return &disk.Error{Disk: id, Kind: disk.Pending, Err: fmt.Errorf("reads don't show the disk, and ECS doesn't say that it is gone: %w", err)}
}

// await reads a disk that was shown until seen says that it is done.
func (a *Attacher) await(ctx context.Context, id disk.ID, seen func(disk.Disk) (bool, error)) (disk.Disk, error) {
	d, err := a.ecs.Await(ctx, id, seen)
	return d, a.confirmMissing(ctx, id, err)
}

// usable refuses a disk that no instance could use as it is to be used.
func (p Publication) usable(d disk.Disk) error {
	if d.Serial == "" {
		return &disk.Error{Disk: d.ID, Kind: disk.Blocked, Err: fmt.Errorf("the disk has no serial number, as disks made before June 2020, so a node can't tell which device it is; " +
			"make a new disk from a snapshot of it")}
	}
	if p.Check == nil {
		return nil
	}
	return p.Check(d)
}

// compatible says whether a disk was published to the instance as it is to be now.
func (p Publication) compatible(d disk.Disk) error {
	if readOnly(d, p.Instance) == p.ReadOnly {
		return nil
	}
	return p.mismatch()
}

// readOnly says whether an instance must not write to a disk.
func readOnly(d disk.Disk, instance disk.InstanceID) bool {
	_, is := d.Tags[disk.ReadOnlyTag(instance)]
	return is
}

func (p Publication) mismatch() error {
	return &disk.Error{Disk: p.Disk, Instance: p.Instance, Kind: disk.Mismatch,
		Err: fmt.Errorf("the disk is published to this node with readonly %v; asked for is %v", !p.ReadOnly, p.ReadOnly)}
}

// attach attaches a disk, or joins an earlier call that does. A read shows it then, which confirm has to tell from earlier ones. Accepted is
// that ECS has accepted a call that was sent now.
func (a *Attacher) attach(ctx context.Context, d disk.Disk, p Publication, force bool) (_ disk.Disk, accepted bool, err error) {
	reply := disk.Reply{Answer: disk.NoAnswer} // unless the call returns
	shown, planned := d.AttachedSince(p.Instance), time.Now()
	defer func() {
		a.table.change(p.Disk, p.Instance, func(r *Record, now time.Time) {
			r.sent(attaching, reply, now)
			if accepted = reply.Answer == disk.Accepted && !now.Add(-reply.Age).Before(planned); accepted {
				r.shown = shown
			}
		})
	}()
	d, reply, err = a.ecs.Attach(ctx, p.Instance, p.Disk, force)
	return d, false, err
}
