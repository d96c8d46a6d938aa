package volume

import (
	"context"
	"fmt"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// isGone asks ECS whether a disk is gone that reads don't show: no read tells, for the account may lose or get the permission to see the
// disk at any moment, and reads lag. The call would remove a tag that no disk has, so it changes nothing. An error says nothing.
func (c *Controller) isGone(ctx context.Context, id disk.ID) (bool, error) {
	err := c.ecs.Untag(ctx, id, []string{disk.NeverSetTag})
	if disk.KindOf(err) == disk.NotFound {
		return true, nil
	}
	return false, err
}

// get reads a disk. NotFound: it isGone.
func (c *Controller) get(ctx context.Context, id disk.ID) (disk.Disk, error) {
	d, err := c.ecs.Get(ctx, id)
	return d, c.confirmMissing(ctx, id, err)
}

// confirmMissing returns the error of a read: NotFound, which ends what the CO asks for, only if the disk isGone.
func (c *Controller) confirmMissing(ctx context.Context, id disk.ID, err error) error {
	if disk.KindOf(err) != disk.NotFound {
		return err
	}
	if gone, _ := c.isGone(ctx, id); gone {
		return err
	}
	return &disk.Error{Disk: id, Kind: disk.Pending, Err: fmt.Errorf("reads don't show the disk, and ECS doesn't say that it is gone: %w", err)}
}

// confirmGone decides about a disk that is to be deleted and whose tags can't be read: nil if it isGone. One that no read shows may be
// there all the same, and may want an archive.
func (c *Controller) confirmGone(ctx context.Context, id disk.ID, why error) error {
	kind := disk.KindOf(why)
	if kind != disk.NotFound && kind != disk.Denied {
		return why
	}
	switch gone, err := c.isGone(ctx, id); {
	case gone:
		return nil
	case kind == disk.Denied:
		return why
	case err != nil:
		return err
	}
	return disk.Errorf(disk.Pending, "whether the disk is to be archived can't be told, for ECS knows it and doesn't show it: %w", why)
}
