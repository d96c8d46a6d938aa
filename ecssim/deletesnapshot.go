package ecssim

import "github.com/topodisk/topodisk/ecssim/wire"

var deleteSnapshot = action{
	name:     "DeleteSnapshot",
	required: []string{"SnapshotId"},
	optional: []string{"Force"},
	do:       (*Server).deleteSnapshot,
}

// deleteSnapshot deletes a snapshot, by force one too that disks were made
// from. One that is progressing is cancelled.
func (s *Server) deleteSnapshot(x *exchange) (wire.Object, *wire.Refusal) {
	force, no := x.Params.Boolean("Force", false)
	if no != nil {
		return nil, no
	}
	n, no := s.findSnapshot(x.Params["SnapshotId"])
	switch {
	case no != nil && s.config.Doubts.ForgiveUnknownSnapshot:
		return nil, nil
	case no != nil:
		return nil, no
	}
	x.disk = n.DiskID
	if !force && s.region.MadeFrom(n) > 0 {
		return nil, wire.Refuse(403, "SnapshotCreatedDisk", "The snapshot %s has been used to create disks.", n.ID)
	}
	s.region.DeleteSnapshot(n)
	return nil, nil
}
