// Package attachment publishes disks to instances and unpublishes them. What it knows of a disk and an instance lies in one Record;
// what comes next is decided in pure functions from what ECS shows and from what it may hide.
package attachment

import (
	"context"
	"crypto/rand"
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
	defer a.table.begin(p.Disk, p.Instance, attached)()
	ctx, leave, err := a.table.admit(ctx, attached)
	if err != nil {
		return disk.Disk{}, "", err
	}
	defer leave()
	d, next, err := a.prepare(ctx, p)
	switch {
	case err != nil:
		return d, "", err
	case next == done:
		a.table.join(d, p.Instance)
		if err := p.compatible(d); err != nil {
			return d, "", err
		}
		return a.recorded(ctx, d, p, false)
	}
	turned, err := a.record(ctx, d, p)
	if err != nil {
		return d, "", err
	}
	force := next == forceAttach
	if d, err = a.attach(ctx, d, p, force); err != nil {
		return d, "", err
	}
	return a.recorded(ctx, d, p, turned && !force)
}

// prepare reads the disk, ends a detach of it that has begun, and returns it with the next step.
func (a *Attacher) prepare(ctx context.Context, p Publication) (disk.Disk, step, error) {
	d, err := a.read(ctx, p)
	if err != nil {
		return d, done, err
	}
	if err := p.usable(d); err != nil {
		return d, done, err
	}
	if a.table.phase(p.Disk, p.Instance) == detaching {
		// A detach has begun, and reads may not show it. It can't be taken back.
		if _, err := a.detach(ctx, d, p.Instance); err != nil {
			return d, done, err
		}
		if d, err = a.ecs.Get(ctx, p.Disk); err != nil {
			return d, done, err
		}
	}
	return a.plan(ctx, d, p)
}

// read reads the disk for the first time. Only ECS may say that it is published already.
func (a *Attacher) read(ctx context.Context, p Publication) (disk.Disk, error) {
	d, err := a.ecs.GetCached(ctx, p.Disk)
	if err == nil && len(d.Attachments) > 0 {
		d, err = a.ecs.Get(ctx, p.Disk)
	}
	if err == nil {
		a.table.change(p.Disk, p.Instance, func(r *Record, now time.Time) { r.look(d, now) })
	}
	return d, err
}

// plan returns the next step, and the disk as it was seen then. It waits for what ends by itself.
func (a *Attacher) plan(ctx context.Context, d disk.Disk, p Publication) (disk.Disk, step, error) {
	next, err := a.table.publishes(d, p)
	if err != nil || next != await {
		return d, next, err
	}
	d, err = a.ecs.Await(ctx, p.Disk, func(d disk.Disk) (bool, error) {
		next, err = a.table.publishes(d, p)
		return next != await, err
	})
	return d, next, err
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
	_, readOnly := d.Tags[disk.ReadOnlyTag(p.Instance)]
	if readOnly == p.ReadOnly {
		return nil
	}
	return &disk.Error{Disk: d.ID, Instance: p.Instance, Kind: disk.Mismatch,
		Err: fmt.Errorf("the disk is published to this node with readonly %v; asked for is %v", readOnly, p.ReadOnly)}
}

// record keeps on the disk, before it is attached, what later calls go by: whether the instance may write, and that the disk is in use.
// Writing is the rule and costs no call, unless a publish for reading was given up. Turned says that the disk was new until now.
func (a *Attacher) record(ctx context.Context, d disk.Disk, p Publication) (turned bool, err error) {
	readOnly := disk.ReadOnlyTag(p.Instance)
	_, isReadOnly := d.Tags[readOnly]
	set, remove := disk.Tags{}, []string(nil)
	switch {
	case p.ReadOnly && !isReadOnly && d.Tags.Room() == 0:
		return false, &disk.Error{Disk: d.ID, Instance: p.Instance, Kind: disk.Blocked, Err: fmt.Errorf("a disk has at most %d tags, this one has them all (%d of them for nodes that read it), and that a node may not write is kept as one more; "+
			"remove a tag that isn't the driver's, or publish it for writing", disk.MostTags, len(readOnlyTags(d, "")))}
	case p.ReadOnly: // a read that lags behind may show the tag of the publish before, which is gone
		set[readOnly] = "true"
	case isReadOnly:
		remove = append(remove, readOnly)
	}
	own, _ := a.table.marked(d.ID, p.Instance)
	inUse := ""
	switch marks(d, own) {
	case mark:
		inUse = disk.InUseMark(rand.Text())
		set[disk.HistoryTag] = inUse
	case unmark:
		remove = append(remove, disk.HistoryTag)
	}
	if err := a.ecs.Tag(ctx, d.ID, set); err != nil {
		return false, err
	}
	if inUse != "" {
		a.table.mark(d.ID, p.Instance, inUse)
	}
	return inUse != "" && isNew(d), a.ecs.Untag(ctx, d.ID, remove)
}

// attach attaches a disk.
func (a *Attacher) attach(ctx context.Context, look disk.Disk, p Publication, force bool) (disk.Disk, error) {
	return a.call(look, p.Instance, attaching, attached, func(r *Record) (disk.Disk, error) {
		return a.ecs.Attach(ctx, p.Instance, p.Disk, force, a.locked(r.Attached))
	})
}

// recorded returns a disk that is attached with what it was before. It waits until reads show what record has kept, for later calls go by
// that.
func (a *Attacher) recorded(ctx context.Context, d disk.Disk, p Publication, turned bool) (disk.Disk, disk.History, error) {
	shown := func(d disk.Disk) bool {
		own, hidden := a.table.marked(d.ID, p.Instance)
		return p.compatible(d) == nil && (!hidden || !hides(d, own))
	}
	if !shown(d) {
		var err error
		d, err = a.ecs.Await(ctx, p.Disk, func(d disk.Disk) (bool, error) { return d.On(p.Instance) && shown(d), nil })
		if err != nil {
			return d, "", err
		}
	}
	own, _ := a.table.marked(d.ID, p.Instance)
	switch {
	case isNew(d): // see marks
		return d, disk.HistoryInUse, a.ecs.Untag(ctx, d.ID, []string{disk.HistoryTag})
	case own != "" && d.FirstAttachment(p.Instance, turned):
		return d, disk.HistoryNew, nil
	}
	return d, disk.HistoryInUse, nil
}

// call makes a call that takes an attachment from one phase to another, and notes what has become of it.
func (a *Attacher) call(look disk.Disk, instance disk.InstanceID, from, to phase, do func(*Record) (disk.Disk, error)) (disk.Disk, error) {
	var record *Record
	a.table.change(look.ID, instance, func(r *Record, _ time.Time) {
		r.begin(look)
		record = r
	})
	d, err := disk.Disk{}, error(&disk.Error{Kind: disk.UnknownOutcome}) // unless do returns
	defer func() {
		a.table.change(look.ID, instance, func(r *Record, now time.Time) {
			switch {
			case err == nil:
				r.remember(d)
				if to == attached || a.table.view(look.ID).settles(instance) {
					r.become(to, now)
				}
			case mayHaveEffect(err):
				r.become(from, now)
			}
		})
	}()
	d, err = do(record)
	return d, err
}

// mayHaveEffect says whether ECS may be at work on a call that has failed.
func mayHaveEffect(err error) bool {
	switch disk.KindOf(err) {
	case disk.Pending, disk.UnknownOutcome, disk.Unexpected:
		return true
	}
	return false
}

// locked lets a Record judge looks with the lock of its Table held.
func (a *Attacher) locked(judge func(disk.Disk, disk.Reply) (bool, error)) func(disk.Disk, disk.Reply) (bool, error) {
	return func(d disk.Disk, reply disk.Reply) (bool, error) {
		a.table.mu.Lock()
		defer a.table.mu.Unlock()
		return judge(d, reply)
	}
}
