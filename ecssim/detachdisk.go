package ecssim

import "github.com/topodisk/topodisk/ecssim/wire"

var detachDisk = action{
	name:       "DetachDisk",
	required:   []string{"InstanceId", "DiskId"},
	optional:   []string{"DeleteWithInstance"},
	regionCode: wire.Refusal{Status: 400, Code: "InvalidRegionId.MalFormed"},
	do:         (*Server).detachDisk,
}

// detachDisk starts to detach a disk. Until that is done, DescribeDisks shows
// it Detaching and still names the instance.
func (s *Server) detachDisk(x *exchange) (wire.Object, *wire.Refusal) {
	deleteWithInstance, no := x.Params.Boolean("DeleteWithInstance", false)
	if no != nil {
		return nil, no
	}
	i, no := s.findInstance(x.Params["InstanceId"])
	if no != nil {
		return nil, no
	}
	d, no := s.findDisk(x.disk)
	if no != nil {
		return nil, no
	}
	if no := i.checkState(403); no != nil {
		return nil, no
	}
	if no := s.checkDetachable(d, i, deleteWithInstance); no != nil {
		return nil, no
	}
	if no := s.checkQueue(i, diskDetaching); no != nil {
		return nil, no
	}
	s.startDetach(x, d.on(i))
	return nil, nil
}

// checkDetachable refuses a disk that is in no state to be detached.
func (s *Server) checkDetachable(d *disk, i *instance, deleteWithInstance bool) *wire.Refusal {
	a := d.on(i)
	ephemeral := categories[d.category].ephemeral
	switch {
	case d.system && i.Status != instanceStopped:
		return wire.Refuse(403, "DiskTypeViolation", "The system disk %s of a running instance can't be detached.", d.id)
	case d.creating || d.modifying:
		return wrongState(d)
	case a == nil && len(d.attachments) == 0:
		return s.alreadyDetached(d, i)
	case a == nil:
		return notAttached(d, i)
	case a.phase == diskDetaching:
		return wire.Refuse(403, "InvalidOperation.DiskDetachingFromThisEcs", "The disk %s is being detached from this instance.", d.id)
	case a.phase != diskInUse:
		return wrongState(d)
	case d.multiAttach && deleteWithInstance:
		return wire.Refuse(403, "DeleteWithInstance.Conflict", "A disk with MultiAttach can't be released together with an instance.")
	case ephemeral && !deleteWithInstance:
		return wire.Refuse(403, "InvalidParameter.DeleteWithInstance", "The disk category %s takes DeleteWithInstance=true only.", d.category)
	}
	return nil
}

// startDetach turns the attachment and plans the end of it.
func (s *Server) startDetach(x *exchange, a *attachment) {
	s.turn(a, diskDetaching, x.now, x.cause())
	s.plan(x, transition{
		at: s.repliesAt(x).Add(s.timing.Vary(s.timing.Detach)), disk: a.disk.id,
		valid: func() bool { return a.live() && a.phase == diskDetaching },
		done:  func(t transition) { s.removeAttachment(a, t.at, t.cause) },
		fail:  func(t transition) { s.turn(a, diskInUse, t.at, t.cause) },
	})
}
