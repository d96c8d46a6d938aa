package actions

import (
	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

var resizeDiskAction = Action{
	Name:     "ResizeDisk",
	required: []string{"DiskId", "NewSize"},
	optional: []string{"Type", "ClientToken"},
	about:    [][2]string{{"disk", "DiskId"}},
	ordered:  true,
	do:       resizeDisk,
}

// resizeDisk makes a disk larger. DescribeDisks shows the new size at once;
// the guest sees it at once if the resize was online, else when it boots or
// when the disk is attached again.
func resizeDisk(req *Request) (wire.Object, *wire.Refusal) {
	_, no := underToken(req, func(req *Request) (string, *wire.Refusal) { return req.Disk, growDisk(req) })
	if no != nil {
		return nil, no
	}
	return wire.Object{"OrderId": ""}, nil
}

// growDisk checks a request for a new size and sets that.
func growDisk(req *Request) *wire.Refusal {
	online := req.Params["Type"] == "online"
	if !req.Params.OneOf("Type", "online", "offline") {
		return wire.Refuse(400, "InvalidParam.Type", "The specified parameter Type %q is not valid: offline or online.", req.Params["Type"])
	}
	size, err := wire.ReadNumber(req.Params["NewSize"])
	if err != nil || size <= 0 {
		return wire.Refuse(400, "InvalidDataDiskSize.ValueNotSupported", "The specified parameter NewSize %q is not valid: it must be a number of GiB above zero.", req.Params["NewSize"])
	}
	d, no := findDisk(req, req.Disk)
	if no != nil {
		return no
	}
	for _, check := range []func() *wire.Refusal{
		func() *wire.Refusal { return checkResizable(req, d) },
		func() *wire.Refusal { return checkOnline(req, d, online) },
		func() *wire.Refusal { return checkGrowth(req, d, size) },
		func() *wire.Refusal { return checkCapacity(req, d.Zone, d.Category, size-d.Size) },
	} {
		if no := check(); no != nil {
			return no
		}
	}
	d.Size, d.Largest, d.Resized = size, size, repliesAt(req)
	for _, a := range d.Attachments {
		if online {
			a.GuestSize = size
		}
	}
	return nil
}

// checkResizable refuses a disk that is in no state to be resized.
func checkResizable(req *Request, d *state.Disk) *wire.Refusal {
	switch {
	case !d.Resized.IsZero() && req.Now.Before(d.Resized.Add(req.Timing.Order)):
		return wire.Refuse(400, "LastOrderProcessing", "The previous order of disk %s is still processing, please try again later.", d.ID)
	case !req.Rules.Doubts.takesState(req.Action.Name, d):
		return wrongState(d)
	case d.Task != nil:
		return wire.Refuse(400, "InvalidStatus.Upgrading", "The disk %s is being changed.", d.ID)
	}
	return checkSnapshots(req, d)
}

// checkOnline refuses what can't be resized while a guest uses it.
func checkOnline(req *Request, d *state.Disk, online bool) *wire.Refusal {
	if !online {
		return nil
	}
	switch {
	case d.Category == "cloud":
		return wire.Refuse(403, "InvalidDiskCategory.NotSupported", "The disk category %s does not support online resizing.", d.Category)
	case d.MultiAttach && req.Rules.Doubts.RefuseSharedOnlineResize:
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
func checkGrowth(req *Request, d *state.Disk, size int) *wire.Refusal {
	spec := state.Categories[d.Category]
	switch {
	case (size < spec.Min || size > spec.Max) && req.Rules.Doubts.ResizeLimitCode != "InvalidDiskSize.TooLarge":
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
