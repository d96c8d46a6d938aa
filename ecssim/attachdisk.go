package ecssim

import (
	"regexp"
	"slices"

	"github.com/topodisk/topodisk/ecssim/wire"
)

var attachDisk = action{
	name:     "AttachDisk",
	required: []string{"InstanceId", "DiskId"},
	optional: []string{
		"DeleteWithInstance", "Force", "Device", "Bootable", "Password", "KeyPairName",
		"AdditionalInfo.EnableSRIOV", "AdditionalInfo.Identifier", "AdditionalInfo.SafeMode", "AdditionalInfo.TargetDevice",
	},
	regionCode: wire.Refusal{Status: 400, Code: "InvalidRegionId.MalFormed"},
	do:         (*Server).attachDisk,
}

// maxSharers is how many instances a disk with MultiAttach can be attached to.
const maxSharers = 16

var deviceForm = regexp.MustCompile(`^/dev/x?vd[b-z]{1,2}$`)

// attachOrder is what an AttachDisk asks for.
type attachOrder struct {
	disk               *disk
	instance           *instance
	deleteWithInstance bool
	force              bool
	device             string
	evict              *attachment // to be taken away by force
	ignored            bool        // accepted without an effect
}

// attachDisk starts to attach a disk. The reply says that ECS will, not that
// it has: DescribeDisks shows the disk Available for a while yet, then
// Attaching, then In_use.
func (s *Server) attachDisk(x *exchange) (wire.Object, *wire.Refusal) {
	var o attachOrder
	steps := []func(*exchange, *attachOrder) *wire.Refusal{
		readAttach, s.findAttach, s.checkInstance, s.checkAttachable, checkForce, checkFit, checkRoom,
	}
	for _, step := range steps {
		if no := step(x, &o); no != nil {
			return nil, no
		}
	}
	if o.ignored {
		return nil, nil
	}
	if no := s.checkQueue(o.instance, diskAttaching); no != nil {
		return nil, no
	}
	s.startAttach(x, o)
	return nil, nil
}

// readAttach reads the parameters that stand for themselves.
func readAttach(x *exchange, o *attachOrder) (no *wire.Refusal) {
	if o.deleteWithInstance, no = x.Params.Boolean("DeleteWithInstance", false); no != nil {
		return no
	}
	if o.force, no = x.Params.Boolean("Force", false); no != nil {
		return no
	}
	bootable, no := x.Params.Boolean("Bootable", false)
	if no != nil {
		return no
	}
	o.device = x.Params["Device"]
	switch {
	case bootable || x.Params["Password"] != "" || x.Params["KeyPairName"] != "":
		return wire.Refuse(400, "InvalidDisk.DiskNotBootable", "The specified disk is a data disk: it can't be attached as a system disk.")
	case o.device != "" && !deviceForm.MatchString(o.device):
		return wire.Refuse(400, "InvalidDevice.Malformed", "The specified device %q is not valid: /dev/xvdb to /dev/xvdz.", o.device)
	}
	return nil
}

// findAttach finds the instance and the disk.
func (s *Server) findAttach(x *exchange, o *attachOrder) (no *wire.Refusal) {
	if o.instance, no = s.findInstance(x.Params["InstanceId"]); no != nil {
		return no
	}
	o.disk, no = s.findDisk(x.disk)
	return no
}

// checkInstance refuses an instance that is in no state to take a disk.
func (s *Server) checkInstance(x *exchange, o *attachOrder) *wire.Refusal {
	if x.now.Before(o.instance.started.Add(s.timing.InstanceReady)) {
		return wire.Refuse(400, "IncorrectInstanceStatus", "The current status of instance %s does not support this operation.", o.instance.ID)
	}
	return o.instance.checkState(400)
}

// checkAttachable refuses a disk that is in no state to be attached.
func (s *Server) checkAttachable(x *exchange, o *attachOrder) *wire.Refusal {
	d := o.disk
	if no := s.checkSettled(x, d); no != nil {
		return no
	}
	if no := d.checkLocks(); no != nil {
		return no
	}
	here := d.on(o.instance)
	switch {
	case d.creating || d.modifying:
		return wrongState(d)
	case here != nil && here.phase == diskDetaching && !s.config.Doubts.RefuseAttachWhileDetaching:
		o.ignored = true // ECS accepts it, and the detach goes on
		return nil
	case here != nil && here.phase == diskInUse:
		return s.inUse(d)
	case here != nil:
		return wrongState(d)
	case len(d.attachments) == 0:
		return nil
	case d.multiAttach && len(d.attachments) >= maxSharers:
		return wire.Refuse(403, "DiskAttachedNumberExceeded", "The number of instances that disk %s is attached to exceeds the limit of %d.", d.id, maxSharers)
	case d.multiAttach:
		return nil
	case o.force && d.state() != diskAttaching:
		o.evict = d.attachments[0]
		return nil
	case d.state() == diskInUse:
		return s.inUse(d)
	}
	return wrongState(d)
}

// checkForce refuses force where it is not for: it moves a regional disk to
// an instance in another zone without waiting for the detach.
func checkForce(_ *exchange, o *attachOrder) *wire.Refusal {
	switch {
	case !o.force || o.ignored:
		return nil
	case o.disk.multiAttach:
		return wire.Refuse(400, "InvalidParameterForce.MultiAttachDiskNotSupported", "The specified parameter Force is not supported by a disk with MultiAttach.")
	case !categories[o.disk.category].regional:
		return wire.Refuse(400, "InvalidParameterForce.DiskCategoryNotSupported", "The specified parameter Force is not supported by disk category %s.", o.disk.category)
	case o.evict != nil && o.evict.instance.Zone == o.instance.Zone:
		return wire.Refuse(403, "InvalidInstance.ZoneConflict", "The instance %s is in the zone of the instance %s that the disk is attached to.", o.instance.ID, o.evict.instance.ID)
	}
	return nil
}

// checkFit refuses a disk that the instance can't take.
func checkFit(_ *exchange, o *attachOrder) *wire.Refusal {
	d, i, t := o.disk, o.instance, o.instance.kind
	ephemeral := categories[d.category].ephemeral
	switch {
	case d.zone != "" && d.zone != i.Zone:
		return wire.Refuse(403, "ResourcesNotInSameZone", "The specified instance %s in %s and disk %s in %s are not in the same zone.", i.ID, i.Zone, d.id, d.zone)
	case !t.takes(d.category):
		return wire.Refuse(403, "InvalidInstanceType.NotSupportDiskCategory", "The instance type %s does not support disk category %s.", t.ID, d.category)
	case d.level == "PL0" && t.NoPL0:
		return wire.Refuse(403, "InvalidInstanceType.NotSupportPL0", "The instance type %s does not support performance level PL0.", t.ID)
	case d.encrypted && t.NotIOOptimized:
		return wire.Refuse(400, "InvalidOperation.InstanceTypeNotSupport", "The instance type %s is not I/O optimized and takes no encrypted disk.", t.ID)
	case d.multiAttach && t.NVMe == "unsupported":
		return wire.Refuse(403, "InvalidInstanceType.NotSupportMultiAttachDisk", "The instance type %s does not support disks with MultiAttach: it has no NVMe.", t.ID)
	case d.multiAttach && o.deleteWithInstance:
		return wire.Refuse(403, "DeleteWithInstance.Conflict", "A disk with MultiAttach can't be released together with an instance.")
	case ephemeral && !o.deleteWithInstance:
		return wire.Refuse(403, "InvalidParameter.DeleteWithInstance", "The disk category %s takes DeleteWithInstance=true only.", d.category)
	case ephemeral && d.home != "" && d.home != i.ID:
		return wire.Refuse(403, "InvalidOperation.OtherInstanceUnsupported", "The disk %s can be attached to the instance %s only, as it was before.", d.id, d.home)
	}
	return nil
}

// checkRoom refuses a disk for which the instance has no place, or not the
// one that is asked for.
func checkRoom(_ *exchange, o *attachOrder) *wire.Refusal {
	i := o.instance
	if o.ignored {
		return nil
	}
	if len(i.data())+1 >= i.kind.DiskQuantity { // one more is the system disk
		return wire.Refuse(403, "InstanceDiskLimitExceeded", "The amount of disks on instance %s reaches its limit of %d, the system disk included.", i.ID, i.kind.DiskQuantity)
	}
	if o.device != "" && slices.ContainsFunc(i.attachments, func(a *attachment) bool { return a.device == o.device }) {
		return wire.Refuse(403, "InvalidDevice.InUse", "The specified device %q is in use.", o.device)
	}
	return nil
}

// startAttach ties the disk to the instance and plans the end of it.
func (s *Server) startAttach(x *exchange, o attachOrder) {
	if o.evict != nil {
		s.removeAttachment(o.evict, x.now, x.cause())
	}
	a := &attachment{
		disk: o.disk, instance: o.instance, device: o.device, phase: diskAttaching, cause: x.cause(), since: x.now, attached: x.now,
	}
	if a.device == "" {
		a.device = o.instance.freeDevice()
	}
	reply := s.repliesAt(x)
	if lag := s.timing.AttachShown; lag > 0 {
		a.shownAt = reply.Add(s.timing.Vary(lag))
	}
	o.disk.deleteWithInstance, o.disk.home = o.deleteWithInstance, o.instance.ID
	s.addAttachment(a)
	s.plan(x, transition{
		at: reply.Add(s.timing.Vary(s.timing.Attach)), disk: o.disk.id,
		valid: func() bool { return a.live() && a.phase == diskAttaching },
		done:  func(t transition) { s.finishAttach(a, t) },
		fail:  func(t transition) { s.removeAttachment(a, t.at, t.cause) },
	})
}

// finishAttach makes the disk In_use. The guest sees it a little later.
func (s *Server) finishAttach(a *attachment, t transition) {
	a.deviceAt, a.guestSize = t.at.Add(s.timing.Vary(s.timing.DeviceVisible)), a.disk.size
	s.queue.add(a.deviceAt, func() { s.earlier.touch(a.disk.id) })
	s.turn(a, diskInUse, t.at, t.cause)
}
