package ecssim

var deleteDisk = action{
	name:       "DeleteDisk",
	required:   []string{"DiskId"},
	regionCode: refusal{status: 400, code: "InvalidRegionId.MalFormed"},
	do:         (*Server).deleteDisk,
}

// deleteDisk deletes a disk that is Available. It is done when the reply comes:
// no read shows the disk any more.
func (s *Server) deleteDisk(x *exchange) (object, *refusal) {
	d := s.disks.byID[x.disk]
	switch {
	case d == nil && s.config.ForgiveUnknownDisk:
		return nil, nil
	case d == nil:
		return nil, refuse(404, "InvalidDiskId.NotFound", "The specified DiskId %q does not exist.", x.disk)
	case x.now.Before(d.created.Add(s.config.Latency.Initializing)):
		return nil, refuse(403, "IncorrectDiskStatus.Initializing", "The specified disk %s is initializing.", d.id)
	case d.state(x.now) != diskAvailable:
		return nil, refuse(403, "IncorrectDiskStatus", "The current status %s of disk %s does not support this operation.", d.state(x.now), d.id)
	}
	s.disks.remove(d)
	return nil, nil
}
