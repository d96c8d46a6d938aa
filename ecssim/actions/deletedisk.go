package actions

import (
	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

var deleteDiskAction = Action{
	Name:       "DeleteDisk",
	required:   []string{"DiskId"},
	regionCode: wire.Refusal{Status: 400, Code: "InvalidRegionId.MalFormed"},
	about:      [][2]string{{"disk", "DiskId"}},
	do:         deleteDisk,
}

// deleteDisk deletes a disk that is Available. It is done when the reply comes:
// no read shows the disk any more.
func deleteDisk(req *Request) (wire.Object, *wire.Refusal) {
	d, no := findDisk(req, req.Disk)
	switch {
	case no != nil && req.Rules.ForgiveUnknownDisk:
		return nil, nil
	case no != nil:
		return nil, no
	}
	if no := checkSettled(req, d); no != nil {
		return nil, no
	}
	if d.State() != state.DiskAvailable || d.Task != nil {
		return nil, wrongState(d)
	}
	if no := checkSnapshots(req, d); no != nil {
		return nil, no
	}
	req.Region.DeleteDisk(d)
	return nil, nil
}

// checkSettled refuses a disk that was made so shortly ago that nothing can
// be done to it, Available as it may look.
func checkSettled(req *Request, d *state.Disk) *wire.Refusal {
	span := req.Timing.Initializing
	if d.Source != nil {
		span = max(span, req.Timing.FromSnapshot)
	}
	if req.Now.Before(d.Created.Add(span)) {
		return wire.Refuse(403, "IncorrectDiskStatus.Initializing", "The specified disk %s is initializing.", d.ID)
	}
	return nil
}
