package ecssim

var resizeDisk = action{
	name:     "ResizeDisk",
	required: []string{"DiskId", "NewSize"},
	optional: []string{"Type", "ClientToken"},
	do:       (*Server).resizeDisk,
}

// resizeDisk makes a disk larger. DescribeDisks shows the new size at once;
// the guest sees it at once if the resize was online, else when it boots or
// when the disk is attached again.
func (s *Server) resizeDisk(x *exchange) (object, *refusal) {
	if no := checkToken(x.params["ClientToken"]); no != nil {
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
	return object{"OrderId": ""}, nil
}

// growDisk checks a request for a new size and sets that.
func (s *Server) growDisk(x *exchange) *refusal {
	online := x.params["Type"] == "online"
	if !x.params.oneOf("Type", "online", "offline") {
		return refuse(400, "InvalidParam.Type", "The specified parameter Type %q is not valid: offline or online.", x.params["Type"])
	}
	size, err := readNumber(x.params["NewSize"])
	if err != nil || size <= 0 {
		return refuse(400, "InvalidDataDiskSize.ValueNotSupported", "The specified parameter NewSize %q is not valid: it must be a number of GiB above zero.", x.params["NewSize"])
	}
	d, no := s.findDisk(x.disk)
	if no != nil {
		return no
	}
	for _, check := range []func() *refusal{
		func() *refusal { return s.checkResizable(x, d) },
		func() *refusal { return s.checkOnline(d, online) },
		func() *refusal { return s.checkGrowth(d, size) },
		func() *refusal { return s.checkCapacity(d.zone, d.category, size-d.size) },
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
func (s *Server) checkResizable(x *exchange, d *disk) *refusal {
	switch {
	case !d.resized.IsZero() && x.now.Before(d.resized.Add(s.config.Latency.Order)):
		return refuse(400, "LastOrderProcessing", "The previous order of disk %s is still processing, please try again later.", d.id)
	case !s.config.Doubts.takesState(x.action.name, d):
		return wrongState(d)
	case d.task != nil:
		return refuse(400, "InvalidStatus.Upgrading", "The disk %s is being changed.", d.id)
	}
	return s.checkSnapshots(d)
}

// checkOnline refuses what can't be resized while a guest uses it.
func (s *Server) checkOnline(d *disk, online bool) *refusal {
	if !online {
		return nil
	}
	switch {
	case d.category == "cloud":
		return refuse(403, "InvalidDiskCategory.NotSupported", "The disk category %s does not support online resizing.", d.category)
	case d.multiAttach && s.config.Doubts.RefuseSharedOnlineResize:
		return refuse(403, "InvalidOperation.MultiAttachDiskNotSupportResizeOnline", "A disk with MultiAttach does not support online resizing.")
	case d.state() != diskInUse:
		return wrongState(d)
	}
	for _, a := range d.attachments {
		if a.instance.Status != instanceRunning {
			return refuse(403, "InvalidInstanceStatus.NotRunning", "The instance %s that disk %s is attached to is not running.", a.instance.ID, d.id)
		}
	}
	return nil
}

// checkGrowth refuses a size that is not above the present one, or beyond
// what the category has.
func (s *Server) checkGrowth(d *disk, size int) *refusal {
	spec := categories[d.category]
	switch {
	case (size < spec.min || size > spec.max) && s.config.Doubts.ResizeLimitCode != "InvalidDiskSize.TooLarge":
		return refuse(400, "InvalidParameter", `The specified parameter "NewSize" is not valid: category %s takes %d to %d GiB.`, d.category, spec.min, spec.max)
	case size < spec.min:
		return refuse(403, "InvalidDiskSize.TooSmall", "The specified disk size %d is too small: category %s takes %d GiB or more.", size, d.category, spec.min)
	case size > spec.max:
		return refuse(403, "InvalidDiskSize.TooLarge", "The specified disk size %d is too large: category %s takes %d GiB or less.", size, d.category, spec.max)
	case size <= d.size:
		return refuse(403, "InvalidDiskSize", "The specified disk size %d is not valid: the disk %s has %d GiB already.", size, d.id, d.size)
	}
	return nil
}
