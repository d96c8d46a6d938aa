package actions

import "github.com/topodisk/topodisk/ecssim/wire"

var deleteSnapshotAction = Action{
	Name:     "DeleteSnapshot",
	required: []string{"SnapshotId"},
	optional: []string{"Force"},
	about:    [][2]string{{"snapshot", "SnapshotId"}},
	do:       deleteSnapshot,
}

// deleteSnapshot deletes a snapshot, by force one too that disks were made
// from. One that is progressing is cancelled.
func deleteSnapshot(req *Request) (wire.Object, *wire.Refusal) {
	force, no := req.Params.Boolean("Force", false)
	if no != nil {
		return nil, no
	}
	n, no := findSnapshot(req, req.Params["SnapshotId"])
	switch {
	case no != nil && req.Rules.Doubts.ForgiveUnknownSnapshot:
		return nil, nil
	case no != nil:
		return nil, no
	}
	req.Disk = n.DiskID
	if !force && req.Region.MadeFrom(n) > 0 {
		return nil, wire.Refuse(403, "SnapshotCreatedDisk", "The snapshot %s has been used to create disks.", n.ID)
	}
	req.Region.DeleteSnapshot(n)
	return nil, nil
}
