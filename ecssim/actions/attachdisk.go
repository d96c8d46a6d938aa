package actions

import (
	"regexp"
	"slices"

	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

var attachDiskAction = Action{
	Name:     "AttachDisk",
	required: []string{"InstanceId", "DiskId"},
	optional: []string{
		"DeleteWithInstance", "Force", "Device", "Bootable", "Password", "KeyPairName",
		"AdditionalInfo.EnableSRIOV", "AdditionalInfo.Identifier", "AdditionalInfo.SafeMode", "AdditionalInfo.TargetDevice",
	},
	regionCode: wire.Refusal{Status: 400, Code: "InvalidRegionId.MalFormed"},
	about:      [][2]string{{"disk", "DiskId"}, {"instance", "InstanceId"}},
	do:         attachDisk,
}

var deviceForm = regexp.MustCompile(`^/dev/x?vd[b-z]{1,2}$`)

// attachOrder is what an AttachDisk asks for.
type attachOrder struct {
	disk               *state.Disk
	instance           *state.Instance
	deleteWithInstance bool
	force              bool
	device             string
	evict              *state.Attachment // to be taken away by force
	ignored            bool              // accepted without an effect
}

// attachDisk starts to attach a disk. The reply says that ECS will, not that
// it has: DescribeDisks shows the disk Available for a while yet, then
// Attaching, then In_use.
func attachDisk(req *Request) (wire.Object, *wire.Refusal) {
	var o attachOrder
	steps := []func(*Request, *attachOrder) *wire.Refusal{
		readAttach, findAttach, checkInstance, checkAttachable, checkForce, checkFit, checkRoom,
	}
	for _, step := range steps {
		if no := step(req, &o); no != nil {
			return nil, no
		}
	}
	if o.ignored {
		return nil, nil
	}
	if no := checkQueue(req, o.instance, state.DiskAttaching); no != nil {
		return nil, no
	}
	startAttach(req, o)
	return nil, nil
}

// readAttach reads the parameters that stand for themselves.
func readAttach(req *Request, o *attachOrder) (no *wire.Refusal) {
	if o.deleteWithInstance, no = req.Params.Boolean("DeleteWithInstance", false); no != nil {
		return no
	}
	if o.force, no = req.Params.Boolean("Force", false); no != nil {
		return no
	}
	bootable, no := req.Params.Boolean("Bootable", false)
	if no != nil {
		return no
	}
	o.device = req.Params["Device"]
	switch {
	case bootable || req.Params["Password"] != "" || req.Params["KeyPairName"] != "":
		return wire.Refuse(400, "InvalidDisk.DiskNotBootable", "The specified disk is a data disk: it can't be attached as a system disk.")
	case o.device != "" && !deviceForm.MatchString(o.device):
		return wire.Refuse(400, "InvalidDevice.Malformed", "The specified device %q is not valid: /dev/xvdb to /dev/xvdz.", o.device)
	}
	return nil
}

// findAttach finds the instance and the disk.
func findAttach(req *Request, o *attachOrder) (no *wire.Refusal) {
	if o.instance, no = findInstance(req, req.Params["InstanceId"]); no != nil {
		return no
	}
	o.disk, no = findDisk(req, req.Disk)
	return no
}

// checkInstance refuses an instance that is in no state to take a disk.
func checkInstance(req *Request, o *attachOrder) *wire.Refusal {
	if req.Now.Before(o.instance.Started.Add(req.Timing.InstanceReady)) {
		return wire.Refuse(400, "IncorrectInstanceStatus", "The current status of instance %s does not support this operation.", o.instance.ID)
	}
	return checkState(o.instance, 400)
}

// checkAttachable refuses a disk that is in no state to be attached.
func checkAttachable(req *Request, o *attachOrder) *wire.Refusal {
	d := o.disk
	if no := checkSettled(req, d); no != nil {
		return no
	}
	if no := checkLocks(d); no != nil {
		return no
	}
	here := d.On(o.instance)
	switch {
	case d.Creating || d.Modifying:
		return wrongState(d)
	case here != nil && here.Phase == state.DiskDetaching && !req.Rules.Doubts.RefuseAttachWhileDetaching:
		o.ignored = true // ECS accepts it, and the detach goes on
		return nil
	case here != nil && here.Phase == state.DiskInUse:
		return inUse(req, d)
	case here != nil:
		return wrongState(d)
	case len(d.Attachments) == 0:
		return nil
	case d.MultiAttach && len(d.Attachments) >= state.MaxSharers:
		return wire.Refuse(403, "DiskAttachedNumberExceeded", "The number of instances that disk %s is attached to exceeds the limit of %d.", d.ID, state.MaxSharers)
	case d.MultiAttach:
		return nil
	case o.force && d.State() != state.DiskAttaching:
		o.evict = d.Attachments[0]
		return nil
	case d.State() == state.DiskInUse:
		return inUse(req, d)
	}
	return wrongState(d)
}

// checkForce refuses force where it is not for: it moves a regional disk to
// an instance in another zone without waiting for the detach.
func checkForce(_ *Request, o *attachOrder) *wire.Refusal {
	switch {
	case !o.force || o.ignored:
		return nil
	case o.disk.MultiAttach:
		return wire.Refuse(400, "InvalidParameterForce.MultiAttachDiskNotSupported", "The specified parameter Force is not supported by a disk with MultiAttach.")
	case !state.Categories[o.disk.Category].Regional:
		return wire.Refuse(400, "InvalidParameterForce.DiskCategoryNotSupported", "The specified parameter Force is not supported by disk category %s.", o.disk.Category)
	case o.evict != nil && o.evict.Instance.Zone == o.instance.Zone:
		return wire.Refuse(403, "InvalidInstance.ZoneConflict", "The instance %s is in the zone of the instance %s that the disk is attached to.", o.instance.ID, o.evict.Instance.ID)
	}
	return nil
}

// checkFit refuses a disk that the instance can't take.
func checkFit(_ *Request, o *attachOrder) *wire.Refusal {
	d, i, t := o.disk, o.instance, o.instance.Kind
	ephemeral := state.Categories[d.Category].Ephemeral
	switch {
	case d.Zone != "" && d.Zone != i.Zone:
		return wire.Refuse(403, "ResourcesNotInSameZone", "The specified instance %s in %s and disk %s in %s are not in the same zone.", i.ID, i.Zone, d.ID, d.Zone)
	case !t.Takes(d.Category):
		return wire.Refuse(403, "InvalidInstanceType.NotSupportDiskCategory", "The instance type %s does not support disk category %s.", t.ID, d.Category)
	case d.Level == "PL0" && t.NoPL0:
		return wire.Refuse(403, "InvalidInstanceType.NotSupportPL0", "The instance type %s does not support performance level PL0.", t.ID)
	case d.Encrypted && t.NotIOOptimized:
		return wire.Refuse(400, "InvalidOperation.InstanceTypeNotSupport", "The instance type %s is not I/O optimized and takes no encrypted disk.", t.ID)
	case d.MultiAttach && t.NVMe == "unsupported":
		return wire.Refuse(403, "InvalidInstanceType.NotSupportMultiAttachDisk", "The instance type %s does not support disks with MultiAttach: it has no NVMe.", t.ID)
	case d.MultiAttach && o.deleteWithInstance:
		return wire.Refuse(403, "DeleteWithInstance.Conflict", "A disk with MultiAttach can't be released together with an instance.")
	case ephemeral && !o.deleteWithInstance:
		return wire.Refuse(403, "InvalidParameter.DeleteWithInstance", "The disk category %s takes DeleteWithInstance=true only.", d.Category)
	case ephemeral && d.Home != "" && d.Home != i.ID:
		return wire.Refuse(403, "InvalidOperation.OtherInstanceUnsupported", "The disk %s can be attached to the instance %s only, as it was before.", d.ID, d.Home)
	}
	return nil
}

// checkRoom refuses a disk for which the instance has no place, or not the
// one that is asked for.
func checkRoom(_ *Request, o *attachOrder) *wire.Refusal {
	i := o.instance
	if o.ignored {
		return nil
	}
	if len(i.Data())+1 >= i.Kind.DiskQuantity { // one more is the system disk
		return wire.Refuse(403, "InstanceDiskLimitExceeded", "The amount of disks on instance %s reaches its limit of %d, the system disk included.", i.ID, i.Kind.DiskQuantity)
	}
	if o.device != "" && slices.ContainsFunc(i.Attachments, func(a *state.Attachment) bool { return a.Device == o.device }) {
		return wire.Refuse(403, "InvalidDevice.InUse", "The specified device %q is in use.", o.device)
	}
	return nil
}

// startAttach ties the disk to the instance and plans the end of it.
func startAttach(req *Request, o attachOrder) {
	if o.evict != nil {
		req.Region.RemoveAttachment(o.evict, req.Now, req.Cause())
	}
	a := &state.Attachment{
		Disk: o.disk, Instance: o.instance, Device: o.device, Phase: state.DiskAttaching, Cause: req.Cause(), Since: req.Now, Attached: req.Now,
	}
	if a.Device == "" {
		a.Device = o.instance.FreeDevice()
	}
	reply := repliesAt(req)
	if lag := req.Timing.AttachShown; lag > 0 {
		a.ShownAt = reply.Add(req.Timing.Vary(lag))
	}
	o.disk.DeleteWithInstance, o.disk.Home = o.deleteWithInstance, o.instance.ID
	req.Region.AddAttachment(a)
	plan(req, state.Transition{
		At: reply.Add(req.Timing.Vary(req.Timing.Attach)), Disk: o.disk.ID,
		Valid: func() bool { return a.Live() && a.Phase == state.DiskAttaching },
		Done:  func(t state.Transition) { finishAttach(req, a, t) },
		Fail:  func(t state.Transition) { req.Region.RemoveAttachment(a, t.At, t.Cause) },
	})
}

// finishAttach makes the disk In_use. The guest sees it a little later.
func finishAttach(req *Request, a *state.Attachment, t state.Transition) {
	a.DeviceAt, a.GuestSize = t.At.Add(req.Timing.Vary(req.Timing.DeviceVisible)), a.Disk.Size
	req.Region.Schedule(a.DeviceAt, func() { req.Region.Touch(a.Disk.ID) })
	req.Region.Turn(a, state.DiskInUse, t.At, t.Cause)
}
