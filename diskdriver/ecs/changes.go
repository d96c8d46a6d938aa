package ecs

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	sdkecs "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/batch"
	"github.com/topodisk/topodisk/diskdriver/ecs/internal/redact"
	"github.com/topodisk/topodisk/diskdriver/ecs/transport"
	"github.com/topodisk/topodisk/diskdriver/internal/deadline"
	"github.com/topodisk/topodisk/internal/sleep"
)

// The codes by which a ModifyDiskSpec that changes nothing says what it would do.
const (
	wouldWork = "DryRunOperation"
	isSo      = "NoChangeInDiskCategoryAndPerformanceLevel"
)

// TryMove asks ECS whether a move would work, and changes nothing. Nil: it
// would, or there is nothing to move. Pending: the disk is being moved just
// now. Invalid: it will never work. Blocked: it may work later.
func (c *Client) TryMove(ctx context.Context, id disk.ID, m disk.Move) error {
	defer c.recent.Changed(id)
	_, err := transport.TryModifyDiskSpec.Send(ctx, c.session, func(r *sdkecs.ModifyDiskSpecRequest) {
		fillMove(r, id, m)
		r.DryRun = requests.NewBoolean(true)
	})
	switch code := transport.CodeOf(err); {
	case code == wouldWork || code == isSo:
		return nil
	case err == nil: // a dry run is never accepted
		return &disk.Error{Op: transport.ModifyDiskSpec.Name, Disk: id, Kind: disk.UnknownOutcome, Err: errors.New("ECS took a dry run for a real one")}
	}
	return ofDisk(id, err)
}

// Move starts to move a disk to another category, level or provisioned IOPS. It
// returns the task to wait for, empty if ECS has none. Nothing to move is no
// error.
func (c *Client) Move(ctx context.Context, id disk.ID, m disk.Move) (disk.TaskID, error) {
	defer c.recent.Changed(id)
	reply, err := transport.ModifyDiskSpec.Send(ctx, c.session, func(r *sdkecs.ModifyDiskSpecRequest) { fillMove(r, id, m) })
	switch {
	case transport.CodeOf(err) == isSo:
		return "", nil
	case err != nil:
		return "", ofDisk(id, err)
	}
	return disk.TaskID(reply.TaskId), nil
}

// fillMove asks for a move.
func fillMove(r *sdkecs.ModifyDiskSpecRequest, id disk.ID, m disk.Move) {
	r.DiskId = string(id)
	r.DiskCategory = string(m.Category)
	r.PerformanceLevel = string(m.Level)
	if m.IOPS != nil {
		r.ProvisionedIops = integer(*m.IOPS)
	}
}

// RunningMove returns the task that is moving a disk, empty if none is.
func (c *Client) RunningMove(ctx context.Context, id disk.ID) (disk.TaskID, error) {
	tasks, err := c.describeTasks(ctx, func(r *sdkecs.DescribeTasksRequest) {
		r.TaskAction = transport.ModifyDiskSpec.Name
		r.TaskStatus = "Processing"
		r.ResourceIds = list(id)
	})
	if err != nil {
		return "", ofDisk(id, err)
	}
	for _, t := range tasks {
		if t.ResourceId == string(id) && t.TaskStatus == "Processing" {
			return disk.TaskID(t.TaskId), nil
		}
	}
	return "", nil
}

// taskPauses are those between the reads of a task; the last one is repeated.
var taskPauses = []time.Duration{time.Second, 3 * time.Second, 10 * time.Second}

// taskForm is the form of the IDs that ECS gives to tasks. They are asked for in
// a list with commas.
var taskForm = regexp.MustCompile(`^[0-9A-Za-z-]{1,64}$`)

// AwaitTask waits until a task of a disk is over; all who wait share calls.
// Unexpected: it failed. Pending: ctx leaves no time to go on waiting.
func (c *Client) AwaitTask(ctx context.Context, id disk.ID, task disk.TaskID) error {
	defer c.recent.Changed(id)
	_, err := c.tasks.Poll(ctx, task, taskPauses, func(t sdkecs.Task) (bool, error) {
		switch t.TaskStatus {
		case "Finished":
			return true, nil
		case "Failed", "Deleted":
			why := fmt.Errorf("task %s ended as %s: %s", task, t.TaskStatus, redact.Text(t.FailedReason))
			return true, &disk.Error{Op: transport.ModifyDiskSpec.Name, Kind: disk.Unexpected, Err: why}
		}
		return false, nil
	}, func(sdkecs.Task) string { return fmt.Sprintf("task %s is not over yet", task) })
	var late *disk.Error
	if errors.As(err, &late) && late.Kind == disk.Pending {
		late.Op = transport.ModifyDiskSpec.Name // what the caller waits for
	}
	return ofDisk(id, err)
}

// tasksByID reads up to a hundred tasks; those that ECS doesn't show yet are zero.
func (c *Client) tasksByID(ctx context.Context, ids []disk.TaskID) (map[disk.TaskID]sdkecs.Task, error) {
	tasks, err := c.describeTasks(ctx, func(r *sdkecs.DescribeTasksRequest) { r.TaskIds = strings.Join(*list(ids...), ",") })
	found := byKey(tasks, func(t sdkecs.Task) disk.TaskID { return disk.TaskID(t.TaskId) })
	for _, id := range ids {
		if _, shown := found[id]; !shown {
			found[id] = sdkecs.Task{}
		}
	}
	return found, err
}

func (c *Client) describeTasks(ctx context.Context, fill func(*sdkecs.DescribeTasksRequest)) ([]sdkecs.Task, error) {
	reply, err := transport.DescribeTasks.Send(ctx, c.session, func(r *sdkecs.DescribeTasksRequest) {
		r.PageSize = integer(batch.Size)
		fill(r)
	})
	if err != nil {
		return nil, err
	}
	return reply.TaskSet.Task, nil
}

// Burst switches the bursting of a disk. Just after a move ECS refuses that for
// a while, which is waited for as long as ctx allows.
func (c *Client) Burst(ctx context.Context, id disk.ID, on bool) error {
	limited, cancel := deadline.BeforeAnswer(ctx)
	defer cancel()
	defer c.recent.Changed(id)
	for {
		_, err := transport.ModifyDiskAttribute.Send(ctx, c.session, func(r *sdkecs.ModifyDiskAttributeRequest) {
			r.DiskId = string(id)
			r.BurstingEnabled = requests.NewBoolean(on)
		})
		if err == nil || transport.CodeOf(err) != "BurstingEnabledForModifyingDiskUnsupported" {
			return ofDisk(id, err)
		}
		if sleep.For(limited, burstPause) != nil {
			return ofDisk(id, err)
		}
	}
}

const burstPause = 2 * time.Second
