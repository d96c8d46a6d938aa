package attachment

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// fence records on a disk, before it is attached, what later calls go by: in disk.HistoryTag that it is in use, and whether the instance
// may write. It is the one place that looks at these tags of a disk before it is attached; nothing that they say keeps a disk
// from being detached. Writing is the rule and costs no call, unless a publish for reading was given up. Turned says that the disk was
// new until now.
func (a *Attacher) fence(ctx context.Context, d disk.Disk, p Publication) (turned bool, err error) {
	readOnly := disk.ReadOnlyTag(p.Instance)
	_, isReadOnly := d.Tags[readOnly]
	if p.ReadOnly && !isReadOnly && d.Tags.Room() == 0 {
		return false, &disk.Error{Disk: d.ID, Instance: p.Instance, Kind: disk.Blocked, Err: fmt.Errorf("a disk has at most %d tags, this one has them all (%d of them for nodes that read it), and that a node may not write is kept as one more; "+
			"remove a tag that isn't the driver's, or publish it for writing", disk.MostTags, len(readers(d)))}
	}
	set, mark := disk.Tags{}, ""
	if p.ReadOnly { // a read that lags behind may show the tag of the publish before, which is gone
		set[readOnly] = "true"
	}
	if a.table.needsMark(d.ID, p.Instance) {
		defer a.table.lockMark(d.ID)()
		if a.table.needsMark(d.ID, p.Instance) { // still
			mark, turned = nextMark(d)
		}
	}
	if mark != "" {
		set[disk.HistoryTag] = mark
	}
	if p.ReadOnly {
		a.table.change(d.ID, p.Instance, func(r *Record, _ time.Time) { r.tagged = true })
	}
	if err := a.ecs.Tag(ctx, d.ID, set); err != nil {
		return false, err
	}
	if mark != "" {
		a.table.mark(d.ID, mark, turned)
	}
	if !p.ReadOnly {
		return turned, a.untag(ctx, d, p.Instance)
	}
	return turned, nil
}

// untag removes the tag that the instance, or any, may not write, if a read shows it or this process has set it, and returns nil once it can't
// be removed later.
func (a *Attacher) untag(ctx context.Context, d disk.Disk, instance disk.InstanceID) error {
	instances := a.table.tagged(d, instance)
	if len(instances) == 0 {
		return nil
	}
	var keys []string
	by := time.Time{}
	for _, one := range instances {
		keys = append(keys, disk.ReadOnlyTag(one))
		by = latest(by, a.table.known(d.ID, one).untagBy)
	}
	err := a.ecs.Untag(ctx, d.ID, keys)
	for _, one := range instances {
		a.table.change(d.ID, one, func(r *Record, now time.Time) {
			if r.tagged = err != nil; disk.KindOf(err) == disk.UnknownOutcome {
				r.untagBy = now.Add(disk.RequestLifetime)
			}
		})
	}
	if err != nil {
		return err
	}
	return pause(ctx, by)
}

// nextMark is the value of disk.HistoryTag with a nonce of its own for a disk as a read shows it, and whether that turns a new
// disk into one in use; empty if the tag says what it must go on saying, or there is no room for it beside that of a node that reads the
// disk, which can't do without.
//
// Only a disk that is new and free is marked as one whose first attachment the driver makes. One that somebody else has attached may
// hold data, and so may any without the tag.
func nextMark(d disk.Disk) (mark string, turned bool) {
	tag, has := d.Tags[disk.HistoryTag]
	switch nonce := rand.Text(); {
	case !has && d.Tags.Room() < 2:
		return "", false
	case isNew(d) && isFree(d):
		return disk.InUseMark(nonce), true
	case strings.HasPrefix(tag, string(disk.HistoryInUse)):
		return disk.InUseMark(nonce), false
	case !has, isNew(d), strings.HasPrefix(tag, disk.UsedMark("")):
		return disk.UsedMark(nonce), false
	}
	return "", false
}

// isFree says whether a read shows that nobody has a disk, whose category ECS may be changing.
func isFree(d disk.Disk) bool {
	return len(d.Attachments) == 0 && slices.Contains([]disk.State{disk.Available, disk.Creating, disk.Modifying}, d.State)
}

func isNew(d disk.Disk) bool { return d.Tags[disk.HistoryTag] == string(disk.HistoryNew) }

// confirm returns a disk that is on an instance as a read shows it that isLater, at the cost of a mark if none can be told to be. Reads
// need not show at once what fence has recorded, which later calls go by.
func (a *Attacher) confirm(ctx context.Context, d disk.Disk, p Publication, fenced bool) (disk.Disk, error) {
	shown := func(d disk.Disk) (bool, error) {
		here := d.On(p.Instance) && d.State != disk.Detaching
		known := a.table.known(d.ID, p.Instance)
		if !here && a.table.marked(d.ID) == d.Tags[disk.HistoryTag] && time.Now().After(known.showsBy) {
			return false, disk.Errorf(disk.Pending, "the disk is %s, and not attached to %s any more", d.State, p.Instance)
		}
		return here && d.State != disk.Attaching && a.table.isLater(d, p.Instance) && (!fenced || p.compatible(d) == nil), nil
	}
	var err error
	if a.table.needsMark(d.ID, p.Instance) || a.table.marked(d.ID) == d.Tags[disk.HistoryTag] && !a.table.isLater(d, p.Instance) {
		d, err = a.markAndRead(ctx, d)
	}
	unordered := a.table.marked(d.ID) == "" && a.table.known(d.ID, p.Instance).ended == "" // no read can be told from another
	if ok := unordered; !ok && err == nil {
		if ok, err = shown(d); !ok && err == nil {
			d, err = a.await(ctx, p.Disk, shown)
		}
	}
	if err == nil {
		a.table.attach(d, p.Instance)
	} else {
		a.table.unmark(p.Disk)
	}
	return d, err
}

// markAndRead sets a new mark, and returns the disk as a read shows it that is later; if there can be no mark, as it is.
func (a *Attacher) markAndRead(ctx context.Context, d disk.Disk) (disk.Disk, error) {
	mark, turned := nextMark(d)
	if mark == "" {
		return d, nil
	}
	if err := a.setMark(ctx, d.ID, mark, turned); err != nil {
		return d, err
	}
	return a.await(ctx, d.ID, func(d disk.Disk) (bool, error) { return d.Tags[disk.HistoryTag] == a.table.marked(d.ID), nil })
}

// setMark sets a mark, of several at a time one after the other: else the last one in ECS need not be the last one in the table.
func (a *Attacher) setMark(ctx context.Context, id disk.ID, mark string, turned bool) error {
	defer a.table.lockMark(id)()
	if err := a.ecs.Tag(ctx, id, disk.Tags{disk.HistoryTag: mark}); err != nil {
		return err
	}
	a.table.mark(id, mark, turned)
	return nil
}

// history says what a disk was before it was attached, as isLater shows it.
func (a *Attacher) history(d disk.Disk, instance disk.InstanceID, turned bool) disk.History {
	if own := a.table.marked(d.ID); own != "" && own == d.Tags[disk.HistoryTag] && d.FirstAttachment(instance, turned) {
		return disk.HistoryNew
	}
	return disk.HistoryInUse
}
