package ecssim

import "github.com/topodisk/topodisk/ecssim/wire"

var resizeDisk = action{
	name:     "ResizeDisk",
	required: []string{"DiskId", "NewSize"},
	optional: []string{"Type", "ClientToken"},
	do:       (*Server).resizeDisk,
}

// resizeDisk makes a disk larger. DescribeDisks shows the new size at once;
// the guest sees it at once if the resize was online, else when it boots or
// when the disk is attached again.
func (s *Server) resizeDisk(x *exchange) (wire.Object, *wire.Refusal) {
	if no := checkToken(x.Params["ClientToken"]); no != nil {
		return nil, no
	}
	id, no := s.tokens.replay(x)
	if no == nil && id == "" {
		no = s.growDisk(x)
		s.tokens.bind(x, x.disk, no, s.config.BindFailedTokens)
	}
	if no != nil {
		return nil, no
	}
	return wire.Object{"OrderId": ""}, nil
}

// growDisk checks a request for a new size and sets that.
func (s *Server) growDisk(x *exchange) *wire.Refusal {
	online := x.Params["Type"] == "online"
	if !x.Params.OneOf("Type", "online", "offline") {
		return wire.Refuse(400, "InvalidParam.Type", "The specified parameter Type %q is not valid: offline or online.", x.Params["Type"])
	}
	size, err := wire.ReadNumber(x.Params["NewSize"])
	if err != nil || size <= 0 {
		return wire.Refuse(400, "InvalidDataDiskSize.ValueNotSupported", "The specified parameter NewSize %q is not valid: it must be a number of GiB above zero.", x.Params["NewSize"])
	}
	d, no := s.findDisk(x.disk)
	if no != nil {
		return no
	}
	for _, check := range []func() *wire.Refusal{
		func() *wire.Refusal { return s.checkResizable(x, d) },
		func() *wire.Refusal { return s.checkOnline(d, online) },
		func() *wire.Refusal { return s.checkGrowth(d, size) },
		func() *wire.Refusal { return s.checkCapacity(d.zone, d.category, size-d.size) },
	} {
		if no := check(); no != nil {
			return no
		}
	}
	d.size, d.largest, d.resized = size, size, s.repliesAt(x)
	for _, a := range d.attachments {
		if online {
			a.guestSize = size
		}
	}
	return nil
}

// checkResizable refuses a disk that is in no state to be resized.
func (s *Server) checkResizable(x *exchange, d *disk) *wire.Refusal {
	switch {
	case !d.resized.IsZero() && x.now.Before(d.resized.Add(s.timing.Order)):
		return wire.Refuse(400, "LastOrderProcessing", "The previous order of disk %s is still processing, please try again later.", d.id)
	case !s.config.Doubts.takesState(x.action.name, d):
		return wrongState(d)
	case d.task != nil:
		return wire.Refuse(400, "InvalidStatus.Upgrading", "The disk %s is being changed.", d.id)
	}
	return s.checkSnapshots(d)
}

// checkOnline refuses what can't be resized while a guest uses it.
func (s *Server) checkOnline(d *disk, online bool) *wire.Refusal {
	if !online {
		return nil
	}
	switch {
	case d.category == "cloud":
		return wire.Refuse(403, "InvalidDiskCategory.NotSupported", "The disk category %s does not support online resizing.", d.category)
	case d.multiAttach && s.config.Doubts.RefuseSharedOnlineResize:
		return wire.Refuse(403, "InvalidOperation.MultiAttachDiskNotSupportResizeOnline", "A disk with MultiAttach does not support online resizing.")
	case d.state() != diskInUse:
		return wrongState(d)
	}
	for _, a := range d.attachments {
		if a.instance.Status != instanceRunning {
			return wire.Refuse(403, "InvalidInstanceStatus.NotRunning", "The instance %s that disk %s is attached to is not running.", a.instance.ID, d.id)
		}
	}
	return nil
}

// checkGrowth refuses a size that is not above the present one, or beyond
// what the category has.
func (s *Server) checkGrowth(d *disk, size int) *wire.Refusal {
	spec := categories[d.category]
	switch {
	case (size < spec.min || size > spec.max) && s.config.Doubts.ResizeLimitCode != "InvalidDiskSize.TooLarge":
		return wire.Refuse(400, "InvalidParameter", `The specified parameter "NewSize" is not valid: category %s takes %d to %d GiB.`, d.category, spec.min, spec.max)
	case size < spec.min:
		return wire.Refuse(403, "InvalidDiskSize.TooSmall", "The specified disk size %d is too small: category %s takes %d GiB or more.", size, d.category, spec.min)
	case size > spec.max:
		return wire.Refuse(403, "InvalidDiskSize.TooLarge", "The specified disk size %d is too large: category %s takes %d GiB or less.", size, d.category, spec.max)
	case size <= d.size:
		return wire.Refuse(403, "InvalidDiskSize", "The specified disk size %d is not valid: the disk %s has %d GiB already.", size, d.id, d.size)
	}
	return nil
}
