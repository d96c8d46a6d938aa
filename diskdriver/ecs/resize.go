package ecs

import (
	"context"
	"fmt"

	sdkecs "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/transport"
)

// Resize makes a disk, as a read has just shown it, at least so large, and returns it with its new size. A
// disk that is large enough is success, and nothing shrinks. A disk in use is
// resized online, so that its guest sees the size without a restart; if its
// instance isn't running, it is resized as a disk at rest.
//
// Pending: an earlier order for the disk, or an attach, detach, snapshot or
// change of category, is under way, or its instance is starting or stopping. OutOfRange: its category has no such size.
// UnknownOutcome: ECS may or may not have resized it.
func (ds *disks) Resize(ctx context.Context, d disk.Disk, size disk.GiB) (disk.Disk, error) {
	if d.Size >= size {
		return d, nil
	}
	if d.State != disk.Attached && d.State != disk.Available {
		return disk.Disk{}, &disk.Error{Op: transport.ResizeDisk.Name, Disk: d.ID, Kind: disk.Pending, Err: fmt.Errorf("the disk is %s", d.State)}
	}
	err := ds.resize(ctx, d, size)
	switch {
	case err == nil:
		d.Size = size
		return d, nil
	case disk.KindOf(err) == disk.UnknownOutcome, transport.CodeOf(err) == "InvalidDiskSize":
		now, readErr := ds.Get(ctx, d.ID) // who else may have resized it, or this call
		if readErr == nil && now.Size >= size {
			return now, nil
		}
	}
	return disk.Disk{}, err
}

// resize makes the call.
func (ds *disks) resize(ctx context.Context, d disk.Disk, size disk.GiB) error {
	err := ds.sendResize(ctx, d.ID, size, d.State == disk.Attached)
	if transport.CodeOf(err) == "InvalidInstanceStatus.NotRunning" { // a guest that starts sees the size
		err = ds.sendResize(ctx, d.ID, size, false)
	}
	return ofDisk(d.ID, err)
}

func (ds *disks) sendResize(ctx context.Context, id disk.ID, size disk.GiB, online bool) error {
	defer ds.recent.Changed(id)
	_, err := transport.ResizeDisk.Send(ctx, ds.session, func(r *sdkecs.ResizeDiskRequest) {
		r.DiskId = string(id)
		r.NewSize = integer(int64(size))
		r.Type = "offline"
		if online {
			r.Type = "online"
		}
	})
	return err
}
