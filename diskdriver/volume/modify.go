package volume

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/internal/deadline"
	"github.com/topodisk/topodisk/diskdriver/params"
	"github.com/topodisk/topodisk/internal/sleep"
)

// mostMoves is how many moves of a disk one call waits for: one that was under
// way when it came, and its own.
const mostMoves = 2

// anyMove is what ECS is asked about, and says that it is moving the disk if it is.
var anyMove = disk.Move{Level: "PL1"}

var (
	errBusy   = errors.New("ECS is busy with the disk, and shows no move that could be waited for")
	errMoving = errors.New("ECS has moved the disk for others, and this change is not made yet")
	errUnseen = errors.New("the change is made, and ECS doesn't show it yet")
)

// ControllerModifyVolume changes what a VolumeAttributesClass may change of a
// disk, and answers when ECS shows it so (CSI spec, ControllerModifyVolume).
// ECS is asked whether a move would work before anything is changed, so that
// what can't be done is refused as a whole.
func (c *Controller) ControllerModifyVolume(ctx context.Context, req *csi.ControllerModifyVolumeRequest) (*csi.ControllerModifyVolumeResponse, error) {
	id := disk.ID(req.GetVolumeId())
	switch {
	case id == "":
		return nil, disk.Errorf(disk.Invalid, "volume_id is missing")
	case len(req.GetMutableParameters()) == 0:
		return nil, disk.Errorf(disk.Invalid, "mutable_parameters are missing")
	}
	change, err := params.ParseChange(req.GetMutableParameters())
	if err != nil {
		return nil, err
	}
	parameters := fmt.Sprint(req.GetMutableParameters()) // sorted by their keys
	if err := c.changes.await(ctx, id, parameters); err != nil {
		return nil, err
	}
	err = c.modify(ctx, id, change)
	c.changes.note(id, parameters, err)
	if err != nil {
		return nil, err
	}
	return &csi.ControllerModifyVolumeResponse{}, nil
}

// modify takes the steps that are left, and returns when ECS shows the change.
func (c *Controller) modify(ctx context.Context, id disk.ID, change disk.Change) error {
	for range mostMoves {
		steps, err := c.settled(ctx, id, change)
		if err != nil || steps.Done() {
			return err
		}
		moved, err := c.tryMove(ctx, id, steps.Move)
		if err == nil && moved {
			continue
		}
		if err == nil {
			err = c.takeSteps(ctx, id, steps)
		}
		if err == nil {
			steps, _, err = c.steps(ctx, id, change)
		}
		if err == nil && !steps.Done() {
			err = &disk.Error{Disk: id, Kind: disk.Pending, Err: errUnseen}
		}
		return err
	}
	return &disk.Error{Disk: id, Kind: disk.Pending, Err: errMoving}
}

// settled returns what is left to do when no move is under way: one that is
// would leave the disk otherwise than ECS shows it now.
func (c *Controller) settled(ctx context.Context, id disk.ID, change disk.Change) (disk.Steps, error) {
	steps, busy, err := c.steps(ctx, id, change)
	doubtful := busy || !change.Move.None() && steps.Move.None()
	if err != nil || !doubtful {
		return steps, err
	}
	task, err := c.ecs.RunningMove(ctx, id)
	switch {
	case err != nil:
		return steps, err
	case task == "" && !busy: // for an empty list says nothing
		return steps, c.checkStill(ctx, id)
	case task == "":
		return steps, &disk.Error{Disk: id, Kind: disk.Pending, Err: errBusy}
	}
	if err := c.ecs.AwaitTask(ctx, id, task); err != nil {
		return steps, err
	}
	steps, _, err = c.steps(ctx, id, change)
	return steps, err
}

// checkStill returns nil if ECS says by a call that changes nothing that it isn't moving a disk.
func (c *Controller) checkStill(ctx context.Context, id disk.ID) error {
	err := c.ecs.TryMove(ctx, id, anyMove)
	switch kind := disk.KindOf(err); {
	case kind == disk.Pending:
		return &disk.Error{Disk: id, Kind: disk.Pending, Err: errBusy}
	case mayPass(kind): // it has said nothing
		return err
	}
	return nil
}

// steps returns what is left to do to a disk as ECS shows it, and whether ECS
// shows that it is being moved.
func (c *Controller) steps(ctx context.Context, id disk.ID, change disk.Change) (disk.Steps, bool, error) {
	d, err := c.get(ctx, id)
	if err != nil {
		return disk.Steps{}, false, err
	}
	if err := c.config.Owner.CheckDisk(d); err != nil {
		return disk.Steps{}, false, err
	}
	steps, err := change.Plan(d)
	return steps, d.State == disk.Modifying, err
}

// tryMove asks ECS whether a move would work. moved: ECS was at work on one of others, which is over now, so what is left has to be found
// out anew.
func (c *Controller) tryMove(ctx context.Context, id disk.ID, to disk.Move) (moved bool, err error) {
	if to.None() {
		return false, nil
	}
	if err = c.ecs.TryMove(ctx, id, to); disk.KindOf(err) == disk.Pending {
		return true, c.awaitMove(ctx, id)
	}
	return false, err
}

// takeSteps does what is left to do, the tags last: a change that ECS refuses leaves them as they were.
func (c *Controller) takeSteps(ctx context.Context, id disk.ID, steps disk.Steps) error {
	if steps.StopBurst {
		if err := c.ecs.Burst(ctx, id, false); err != nil {
			return err
		}
	}
	if !steps.Move.None() {
		if err := c.move(ctx, id, steps.Move); err != nil {
			return err
		}
	}
	if steps.StartBurst {
		if err := c.ecs.Burst(ctx, id, true); err != nil {
			return err
		}
	}
	if err := c.ecs.Untag(ctx, id, steps.Untag); err != nil {
		return err
	}
	return c.ecs.Tag(ctx, id, steps.Tag)
}

// move moves a disk and waits until that is over.
func (c *Controller) move(ctx context.Context, id disk.ID, to disk.Move) error {
	task, err := c.ecs.Move(ctx, id, to)
	if err != nil || task == "" {
		return err
	}
	return c.ecs.AwaitTask(ctx, id, task)
}

// awaitMove waits for a move that an earlier call, perhaps of another process,
// has started. Pending: something else keeps the disk, or reads lag.
func (c *Controller) awaitMove(ctx context.Context, id disk.ID) error {
	task, err := c.ecs.RunningMove(ctx, id)
	switch {
	case err != nil:
		return err
	case task == "":
		return &disk.Error{Disk: id, Kind: disk.Pending, Err: errBusy}
	}
	return c.ecs.AwaitTask(ctx, id, task)
}

// openChanges are the changes of disks that ECS may yet get, for a call of this process has no answer: one that arrives after another change
// was answered would undo that.
type openChanges struct {
	mu     sync.Mutex
	byDisk map[disk.ID]openChange
}

// openChange is one of them. Parameters is what was asked for, as text.
type openChange struct {
	parameters string
	until      time.Time
}

// note notes how a change has ended.
func (o *openChanges) note(id disk.ID, parameters string, err error) {
	if disk.KindOf(err) != disk.UnknownOutcome {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	for other, open := range o.byDisk {
		if !now.Before(open.until) {
			delete(o.byDisk, other)
		}
	}
	o.byDisk[id] = openChange{parameters, now.Add(disk.RequestLifetime)}
}

// await waits until no other change of the disk can arrive any more. Pending: the caller's time is over before.
func (o *openChanges) await(ctx context.Context, id disk.ID, parameters string) error {
	o.mu.Lock()
	open := o.byDisk[id]
	o.mu.Unlock()
	wait := time.Until(open.until)
	if wait <= 0 || open.parameters == parameters {
		return nil
	}
	limited, cancel := deadline.BeforeAnswer(ctx)
	defer cancel()
	if sleep.For(limited, wait) != nil {
		return &disk.Error{Disk: id, Kind: disk.Pending, Err: fmt.Errorf("another change of the disk has no answer, and may yet reach ECS for %s", wait.Round(time.Second))}
	}
	return nil
}
