package ecssim

import (
	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

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
		func() *wire.Refusal { return s.checkCapacity(d.Zone, d.Category, size-d.Size) },
	} {
		if no := check(); no != nil {
			return no
		}
	}
	d.Size, d.Largest, d.Resized = size, size, s.repliesAt(x)
	for _, a := range d.Attachments {
		if online {
			a.GuestSize = size
		}
	}
	return nil
}

// checkResizable refuses a disk that is in no state to be resized.
func (s *Server) checkResizable(x *exchange, d *state.Disk) *wire.Refusal {
	switch {
	case !d.Resized.IsZero() && x.now.Before(d.Resized.Add(s.timing.Order)):
		return wire.Refuse(400, "LastOrderProcessing", "The previous order of disk %s is still processing, please try again later.", d.ID)
	case !s.config.Doubts.takesState(x.action.name, d):
		return wrongState(d)
	case d.Task != nil:
		return wire.Refuse(400, "InvalidStatus.Upgrading", "The disk %s is being changed.", d.ID)
	}
	return s.checkSnapshots(d)
}

// checkOnline refuses what can't be resized while a guest uses it.
func (s *Server) checkOnline(d *state.Disk, online bool) *wire.Refusal {
	if !online {
		return nil
	}
	switch {
	case d.Category == "cloud":
		return wire.Refuse(403, "InvalidDiskCategory.NotSupported", "The disk category %s does not support online resizing.", d.Category)
	case d.MultiAttach && s.config.Doubts.RefuseSharedOnlineResize:
		return wire.Refuse(403, "InvalidOperation.MultiAttachDiskNotSupportResizeOnline", "A disk with MultiAttach does not support online resizing.")
	case d.State() != state.DiskInUse:
		return wrongState(d)
	}
	for _, a := range d.Attachments {
		if a.Instance.Status != state.InstanceRunning {
			return wire.Refuse(403, "InvalidInstanceStatus.NotRunning", "The instance %s that disk %s is attached to is not running.", a.Instance.ID, d.ID)
		}
	}
	return nil
}

// checkGrowth refuses a size that is not above the present one, or beyond
// what the category has.
func (s *Server) checkGrowth(d *state.Disk, size int) *wire.Refusal {
	spec := state.Categories[d.Category]
	switch {
	case (size < spec.Min || size > spec.Max) && s.config.Doubts.ResizeLimitCode != "InvalidDiskSize.TooLarge":
		return wire.Refuse(400, "InvalidParameter", `The specified parameter "NewSize" is not valid: category %s takes %d to %d GiB.`, d.Category, spec.Min, spec.Max)
	case size < spec.Min:
		return wire.Refuse(403, "InvalidDiskSize.TooSmall", "The specified disk size %d is too small: category %s takes %d GiB or more.", size, d.Category, spec.Min)
	case size > spec.Max:
		return wire.Refuse(403, "InvalidDiskSize.TooLarge", "The specified disk size %d is too large: category %s takes %d GiB or less.", size, d.Category, spec.Max)
	case size <= d.Size:
		return wire.Refuse(403, "InvalidDiskSize", "The specified disk size %d is not valid: the disk %s has %d GiB already.", size, d.ID, d.Size)
	}
	return nil
}
