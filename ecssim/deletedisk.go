package ecssim

import (
	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

var deleteDisk = action{
	name:       "DeleteDisk",
	required:   []string{"DiskId"},
	regionCode: wire.Refusal{Status: 400, Code: "InvalidRegionId.MalFormed"},
	do:         (*Server).deleteDisk,
}

// deleteDisk deletes a disk that is Available. It is done when the reply comes:
// no read shows the disk any more.
func (s *Server) deleteDisk(x *exchange) (wire.Object, *wire.Refusal) {
	d, no := s.findDisk(x.disk)
	switch {
	case no != nil && s.config.ForgiveUnknownDisk:
		return nil, nil
	case no != nil:
		return nil, no
	}
	if no := s.checkSettled(x, d); no != nil {
		return nil, no
	}
	if d.State() != state.DiskAvailable || d.Task != nil {
		return nil, wrongState(d)
	}
	if no := s.checkSnapshots(d); no != nil {
		return nil, no
	}
	s.region.DeleteDisk(d)
	return nil, nil
}

// checkSettled refuses a disk that was made so shortly ago that nothing can
// be done to it, Available as it may look.
func (s *Server) checkSettled(x *exchange, d *state.Disk) *wire.Refusal {
	span := s.timing.Initializing
	if d.Source != nil {
		span = max(span, s.timing.FromSnapshot)
	}
	if x.now.Before(d.Created.Add(span)) {
		return wire.Refuse(403, "IncorrectDiskStatus.Initializing", "The specified disk %s is initializing.", d.ID)
	}
	return nil
}
