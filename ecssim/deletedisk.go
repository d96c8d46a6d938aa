package ecssim

import "github.com/topodisk/topodisk/ecssim/wire"

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
	if d.state() != diskAvailable || d.task != nil {
		return nil, wrongState(d)
	}
	if no := s.checkSnapshots(d); no != nil {
		return nil, no
	}
	s.dropDisk(d)
	return nil, nil
}

// dropDisk removes a disk, and its automatic snapshots unless it keeps them.
func (s *Server) dropDisk(d *disk) {
	s.disks.remove(d)
	if !d.keepAutoSnapshot {
		s.dropAutomatic(d)
	}
}

// findDisk returns a disk that must exist.
func (s *Server) findDisk(id string) (*disk, *wire.Refusal) {
	d := s.disks.byID[id]
	if d == nil {
		return nil, wire.Refuse(404, "InvalidDiskId.NotFound", "The specified DiskId %q does not exist.", id)
	}
	return d, nil
}

// checkSettled refuses a disk that was made so shortly ago that nothing can
// be done to it, Available as it may look.
func (s *Server) checkSettled(x *exchange, d *disk) *wire.Refusal {
	span := s.timing.Initializing
	if d.source != nil {
		span = max(span, s.timing.FromSnapshot)
	}
	if x.now.Before(d.created.Add(span)) {
		return wire.Refuse(403, "IncorrectDiskStatus.Initializing", "The specified disk %s is initializing.", d.id)
	}
	return nil
}
