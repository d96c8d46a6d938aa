package ecs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	sdkecs "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/batch"
	"github.com/topodisk/topodisk/diskdriver/ecs/transport"
)

// growthShows is how long a read may take to show the size that a disk has by ECS's answer. ECS is known to show it at once.
const growthShows = 10 * time.Second

// Resize makes a disk, as a read has just shown it, at least so large, and returns it as a read shows it then. A
// disk that is large enough is success, and nothing shrinks. A disk in use is
// resized online, so that its guests see the size without a restart; if none of its
// instances runs, it is resized as a disk at rest.
//
// Pending: an earlier order for the disk, or an attach, detach, snapshot or
// change of category, is under way, or its instance is starting or stopping; or the disk has the size by ECS's answer, and no read shows it. OutOfRange: its
// category has no such size. Blocked: some of its instances run, and others don't.
// UnknownOutcome: ECS may or may not have resized it.
func (c *Client) Resize(ctx context.Context, d disk.Disk, size disk.GiB) (disk.Disk, error) {
	if d.Size >= size {
		return d, nil
	}
	if d.State != disk.Attached && d.State != disk.Available {
		return disk.Disk{}, &disk.Error{Op: transport.ResizeDisk.Name, Disk: d.ID, Kind: disk.Pending, Err: fmt.Errorf("the disk is %s", d.State)}
	}
	reply, err := c.resize(ctx, d, size)
	switch {
	case err == nil:
		said := fmt.Sprintf("ECS has accepted %d GiB", size)
		if reply.OrderId != "" {
			said += " as order " + reply.OrderId
		}
		return c.grown(ctx, d.ID, size, said, reply.RequestId)
	case transport.CodeOf(err) == "InvalidDiskSize": // an earlier call, or somebody else's, has made it so large
		var refusal *disk.Error
		errors.As(err, &refusal)
		return c.grown(ctx, d.ID, size, fmt.Sprintf("ECS says that the disk has %d GiB already", size), refusal.RequestID)
	case disk.KindOf(err) == disk.UnknownOutcome:
		now, readErr := c.Get(ctx, d.ID) // who else may have resized it, or this call
		if readErr == nil && now.Size >= size {
			return now, nil
		}
	}
	return disk.Disk{}, err
}

// grown returns a disk when a read shows it with the size that it has by ECS's answer.
func (c *Client) grown(ctx context.Context, id disk.ID, size disk.GiB, said, requestID string) (disk.Disk, error) {
	limited, cancel := context.WithTimeout(ctx, growthShows)
	defer cancel()
	now, err := c.reads.Await(limited, batch.Change{Disk: id}, func(d disk.Disk) (bool, error) { return d.Size >= size, nil })
	if err == nil {
		return now, nil
	}
	e := &disk.Error{Op: transport.ResizeDisk.Name, Disk: id, Kind: disk.Pending, RequestID: requestID}
	e.Err = fmt.Errorf("%s, and no read shows that: %w", said, err)
	if now.ID != "" {
		e.Err = fmt.Errorf("%s, and still shows %d GiB", said, now.Size)
	}
	return disk.Disk{}, e
}

// resize makes the call.
func (c *Client) resize(ctx context.Context, d disk.Disk, size disk.GiB) (*sdkecs.ResizeDiskResponse, error) {
	reply, err := c.sendResize(ctx, d.ID, size, d.State == disk.Attached)
	if transport.CodeOf(err) == "InvalidInstanceStatus.NotRunning" { // a guest that starts sees the size
		if err := c.checkNoneRuns(ctx, d.ID, err); err != nil {
			return nil, ofDisk(d.ID, err)
		}
		reply, err = c.sendResize(ctx, d.ID, size, false)
	}
	return reply, ofDisk(d.ID, err)
}

// checkNoneRuns returns nil if all instances that have a disk are stopped: a guest that runs doesn't see what is resized offline, and nothing
// would mend that before it starts again.
func (c *Client) checkNoneRuns(ctx context.Context, id disk.ID, refusal error) error {
	now, err := c.Get(ctx, id)
	if err != nil {
		return err
	}
	instances, err := c.describeInstances(ctx, now.Holders())
	if err != nil {
		return err
	}
	states := make(map[disk.InstanceID]string, len(instances))
	for _, i := range instances {
		states[disk.InstanceID(i.InstanceId)] = i.Status
	}
	var stopped, others []string
	for _, a := range now.Attachments {
		switch state := states[a.Instance]; state {
		case "Stopped":
			stopped = append(stopped, string(a.Instance))
		case "":
			others = append(others, fmt.Sprintf("%s is not shown to these credentials", a.Instance))
		default:
			others = append(others, fmt.Sprintf("%s is %s", a.Instance, state))
		}
	}
	switch {
	case len(others) == 0:
		return nil
	case len(stopped) == 0: // none of them is, any more or yet
		var said *disk.Error
		if errors.As(refusal, &said) {
			return &disk.Error{Op: said.Op, Disk: id, Kind: disk.Pending, RequestID: said.RequestID, Err: said.Err}
		}
		return refusal
	}
	return &disk.Error{Op: transport.ResizeDisk.Name, Disk: id, Kind: disk.Blocked, Err: fmt.Errorf(
		"instance %s, and %s is Stopped: ECS resizes a disk for all of its instances only while all run or none does; start or detach those that don't run",
		strings.Join(others, ", instance "), strings.Join(stopped, ", "))}
}

func (c *Client) sendResize(ctx context.Context, id disk.ID, size disk.GiB, online bool) (*sdkecs.ResizeDiskResponse, error) {
	defer c.recent.Changed(id)
	return transport.ResizeDisk.Send(ctx, c.session, func(r *sdkecs.ResizeDiskRequest) {
		r.DiskId = string(id)
		r.NewSize = integer(int64(size))
		r.Type = "offline"
		if online {
			r.Type = "online"
		}
	})
}
