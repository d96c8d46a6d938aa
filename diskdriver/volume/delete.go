package volume

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/internal/affinity"
	"github.com/topodisk/topodisk/internal/sleep"
	"github.com/topodisk/topodisk/internal/unused"
)

// The pauses between deletes of a disk that ECS has not finished with: about
// five minutes may pass until a disk that was made of a large snapshot is.
const (
	firstPause = time.Second
	lastPause  = 10 * time.Second
	timeToTell = time.Second // what an answer needs
)

// DeleteVolume deletes a disk. A volume that doesn't exist is deleted (CSI
// spec, DeleteVolume), and one that isn't the cluster's is not. A disk that is attached is left alone:
// FailedPrecondition, which names who has it. A disk that ECS is still making
// is waited for. One whose class wants so is kept as a snapshot, which is safe
// before the disk goes, and the temporary snapshot of a copy goes before it. A
// volume of its name may be made anew at once. A call that is only for a disk
// that was never used leaves every other alone: disk.ErrUsed.
func (c *Controller) DeleteVolume(ctx context.Context, req *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, disk.Errorf(disk.Invalid, "volume_id is missing")
	}
	id := disk.ID(req.GetVolumeId())
	if unused.IsOnly(ctx) {
		if err := c.checkNeverUsed(ctx, id); err != nil {
			return nil, err
		}
	}
	was, err := c.archive(ctx, id)
	if err != nil {
		return nil, err
	}
	if was.ID == "" { // ECS has said that the region doesn't have it
		if err := c.checkRegion(ctx, id, affinity.Of(ctx)); err != nil {
			return nil, err
		}
	}
	if was.Tags[disk.CloneTag] != "" {
		c.releaseTemporary(ctx, was) // of a create that couldn't: without the copy nothing shows that it was made
	}
	if err := c.remove(ctx, id, was.State == disk.Creating); err != nil {
		return nil, err
	}
	c.creations.Deleted(was.Tags[disk.VolumeNameTag], time.Now(), id)
	return &csi.DeleteVolumeResponse{}, nil
}

// checkRegion has an error for a disk that the driver's region doesn't have and whose PersistentVolume is in another one: it may be there. A
// zone is of the region if it is named after it, as ECS's are, or ECS has something to offer in it.
func (c *Controller) checkRegion(ctx context.Context, id disk.ID, a affinity.Affinity) error {
	region, where := c.config.Owner.Region, a.Regions
	if len(where) == 0 {
		where = a.Zones
	}
	if len(where) == 0 || slices.Contains(where, region) || slices.ContainsFunc(a.Zones, func(zone string) bool { return strings.HasPrefix(zone, region) }) {
		return nil
	}
	if len(a.Regions) == 0 {
		offers, err := c.zoneOffers(ctx)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(a.Zones, func(zone string) bool { return offers[disk.Zone(zone)] != nil }) {
			return nil
		}
	}
	return &disk.Error{Disk: id, Kind: disk.Blocked, Err: fmt.Errorf("the PersistentVolume is in %s by its node affinity, and this driver (--region) works in %s, "+
		"which has no such disk; give the driver the region of the disk, or delete the disk there by hand and remove the finalizers of the PersistentVolume", strings.Join(where, ", "), region)}
}

// checkNeverUsed returns disk.ErrUsed unless a read proves that the disk was never used, or it is gone.
func (c *Controller) checkNeverUsed(ctx context.Context, id disk.ID) error {
	shown, err := c.ecs.Get(ctx, id)
	switch {
	case err != nil:
		return c.confirmGone(ctx, id, err)
	case !shown.NeverUsed():
		return &disk.Error{Disk: id, Kind: disk.Blocked, Err: fmt.Errorf("only a disk that was never used is to be deleted: %w", disk.ErrUsed)}
	}
	return nil
}

// remove deletes a disk, again and again while ECS has not finished with it.
// creating says that a read has just shown it Creating: what refuses a delete
// then is over by itself, and may be before the next read.
func (c *Controller) remove(ctx context.Context, id disk.ID, creating bool) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := c.ecs.Delete(ctx, id)
		switch disk.KindOf(err) {
		case disk.InUse:
			var state disk.State
			state, err = c.holdsBack(ctx, id, err)
			if state != disk.Creating && (state != disk.Available || !creating) {
				return err
			}
		case disk.Pending:
		default:
			return err
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < pause+timeToTell {
			return err
		}
		if sleep.For(ctx, pause) != nil {
			return err
		}
	}
}

// holdsBack says what keeps ECS from deleting a disk: an instance that has it,
// or a change that will be over. It returns the state that a read shows, empty
// if none does.
func (c *Controller) holdsBack(ctx context.Context, id disk.ID, refused error) (disk.State, error) {
	shown, err := c.ecs.Get(ctx, id)
	switch {
	case disk.KindOf(err) == disk.NotFound: // ECS has just known it, so the next answer to a delete says more than a read
		return "", &disk.Error{Disk: id, Kind: disk.Pending, Err: fmt.Errorf("%w, and no read shows it", refused)}
	case mayPass(disk.KindOf(err)):
		return "", &disk.Error{Disk: id, Kind: disk.KindOf(err), Err: fmt.Errorf("%w, and what holds it can't be read now: %w", refused, err)}
	case err != nil:
		return "", refused
	}
	if held := heldBack(shown, refused); held != nil {
		return shown.State, held
	}
	// What held it is over, or reads lag.
	return shown.State, &disk.Error{Disk: id, Kind: disk.Pending, Err: refused}
}

// mayPass says whether a call has failed for a reason that passes.
func mayPass(kind disk.Kind) bool {
	return kind == disk.Throttled || kind == disk.Unreachable || kind == disk.UnknownOutcome
}

// heldBack is the error of a disk that can't be deleted as ECS shows it; nil if
// it can. why is of Kind InUse.
func heldBack(d disk.Disk, why error) error {
	switch {
	case d.State == disk.Attached || d.State == disk.Attaching:
		return fmt.Errorf("the disk is attached to %s, and is not deleted: %w", disk.InstanceNames(d.Holders()), why)
	case d.State != disk.Available:
		return &disk.Error{Disk: d.ID, Kind: disk.Pending, Err: fmt.Errorf("the disk is %s, and is deleted when that is over: %w", d.State, why)}
	}
	return nil
}
