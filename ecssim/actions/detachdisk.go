package actions

import (
	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

var detachDiskAction = Action{
	Name:       "DetachDisk",
	required:   []string{"InstanceId", "DiskId"},
	optional:   []string{"DeleteWithInstance"},
	regionCode: wire.Refusal{Status: 400, Code: "InvalidRegionId.MalFormed"},
	about:      [][2]string{{"disk", "DiskId"}, {"instance", "InstanceId"}},
	do:         detachDisk,
}

// detachDisk starts to detach a disk. Until that is done, DescribeDisks shows
// it Detaching and still names the instance.
func detachDisk(req *Request) (wire.Object, *wire.Refusal) {
	deleteWithInstance, no := req.Params.Boolean("DeleteWithInstance", false)
	if no != nil {
		return nil, no
	}
	i, no := findInstance(req, req.Params["InstanceId"])
	if no != nil {
		return nil, no
	}
	d, no := findDisk(req, req.Disk)
	if no != nil {
		return nil, no
	}
	if no := checkState(i, 403); no != nil {
		return nil, no
	}
	if no := checkDetachable(req, d, i, deleteWithInstance); no != nil {
		return nil, no
	}
	if no := checkQueue(req, i, state.DiskDetaching); no != nil {
		return nil, no
	}
	startDetach(req, d.On(i))
	return nil, nil
}

// checkDetachable refuses a disk that is in no state to be detached.
func checkDetachable(req *Request, d *state.Disk, i *state.Instance, deleteWithInstance bool) *wire.Refusal {
	a := d.On(i)
	ephemeral := state.Categories[d.Category].Ephemeral
	switch {
	case d.System && i.Status != state.InstanceStopped:
		return wire.Refuse(403, "DiskTypeViolation", "The system disk %s of a running instance can't be detached.", d.ID)
	case d.Creating || d.Modifying:
		return wrongState(d)
	case a == nil && len(d.Attachments) == 0:
		return alreadyDetached(req, d, i)
	case a == nil:
		return notAttached(d, i)
	case a.Phase == state.DiskDetaching:
		return wire.Refuse(403, "InvalidOperation.DiskDetachingFromThisEcs", "The disk %s is being detached from this instance.", d.ID)
	case a.Phase != state.DiskInUse:
		return wrongState(d)
	case d.MultiAttach && deleteWithInstance:
		return wire.Refuse(403, "DeleteWithInstance.Conflict", "A disk with MultiAttach can't be released together with an instance.")
	case ephemeral && !deleteWithInstance:
		return wire.Refuse(403, "InvalidParameter.DeleteWithInstance", "The disk category %s takes DeleteWithInstance=true only.", d.Category)
	}
	return nil
}

// startDetach turns the attachment and plans the end of it.
func startDetach(req *Request, a *state.Attachment) {
	req.Region.Turn(a, state.DiskDetaching, req.Now, req.Cause())
	plan(req, state.Transition{
		At: repliesAt(req).Add(req.Timing.Vary(req.Timing.Detach)), Disk: a.Disk.ID,
		Valid: func() bool { return a.Live() && a.Phase == state.DiskDetaching },
		Done:  func(t state.Transition) { req.Region.RemoveAttachment(a, t.At, t.Cause) },
		Fail:  func(t state.Transition) { req.Region.Turn(a, state.DiskInUse, t.At, t.Cause) },
	})
}
