package attachment

import (
	"context"
	"strings"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/internal/sleep"
)

// Unpublish detaches a disk from an instance, or from all if none is
// named. It is nil only when ECS shows that the instance hasn't the disk, be the instance running, stopped or gone. NotFound: the
// disk doesn't exist.
func (a *Attacher) Unpublish(ctx context.Context, id disk.ID, instance disk.InstanceID) error {
	defer a.table.begin(id, instance, detached)()
	a.table.unmark(id, instance)
	ctx, leave, err := a.table.admit(ctx, detached)
	if err != nil {
		return err
	}
	defer leave()
	if a.table.phase(id, instance) == attached { // ECS's answer says if it isn't so any more
		d, err := a.detach(ctx, disk.Disk{ID: id}, instance)
		if err != nil {
			return err
		}
		return a.ecs.Untag(ctx, id, readOnlyTags(d, instance))
	}
	d, err := a.existing(ctx, id, instance)
	if err == nil {
		a.table.change(id, instance, func(r *Record, now time.Time) { r.look(d, now) })
	}
	for err == nil {
		next, instances := a.table.unpublishes(d, instance)
		for _, i := range instances {
			if _, err := a.detach(ctx, d, i); err != nil {
				return err
			}
		}
		switch {
		case next == done, next == detach && instance != "" && a.table.phase(id, instance) == detached:
			a.table.change(id, instance, func(r *Record, now time.Time) { r.become(detached, now) })
			return a.ecs.Untag(ctx, id, readOnlyTags(d, instance))
		case next == detach && instance == "": // a read may not have shown all
			d, err = a.ecs.Get(ctx, id)
		default:
			d, err = a.ecs.Await(ctx, id, func(d disk.Disk) (bool, error) {
				next, _ := a.table.unpublishes(d, instance)
				return next != await, nil
			})
		}
	}
	if disk.KindOf(err) == disk.NotFound { // which is success: nobody asks again
		a.table.change(id, instance, func(r *Record, _ time.Time) { r.wanted = unknown })
	}
	return err
}

// existing reads a disk. A read that lags behind may be older than the disk, so a process that another one may just have worked before
// reads again later before it says that there is no such disk.
func (a *Attacher) existing(ctx context.Context, id disk.ID, instance disk.InstanceID) (disk.Disk, error) {
	d, err := a.ecs.Get(ctx, id)
	if wait := a.table.untilShown(id, instance); disk.KindOf(err) == disk.NotFound && wait > 0 {
		if sleep.For(ctx, wait) != nil {
			return d, disk.Errorf(disk.Pending, "ECS shows no such disk, and within %s of another replica's work it may not show one yet: %w", lag, err)
		}
		return a.ecs.Get(ctx, id)
	}
	return d, err
}

// readOnlyTags are the tags of a disk that record that an instance, or any, may not write.
func readOnlyTags(d disk.Disk, instance disk.InstanceID) []string {
	var keys []string
	for key := range d.Tags {
		reader, ok := strings.CutPrefix(key, disk.ReadOnlyTag(""))
		if ok && (instance == "" || disk.InstanceID(reader) == instance) {
			keys = append(keys, key)
		}
	}
	return keys
}

// detach detaches a disk, as a look has shown it, if there was one, from one instance.
func (a *Attacher) detach(ctx context.Context, look disk.Disk, instance disk.InstanceID) (disk.Disk, error) {
	return a.call(look, instance, detaching, detached, func(r *Record) (disk.Disk, error) {
		return a.ecs.Detach(ctx, instance, look.ID, a.locked(func(d disk.Disk, reply disk.Reply) (bool, error) {
			if r.provesUnheld(d, reply, time.Now()) {
				r.refused = time.Now()
			}
			return r.Detached(d, reply)
		}))
	})
}
