package actions

import (
	"slices"

	"github.com/topodisk/topodisk/ecssim/wire"
)

var deleteSnapshotGroupAction = Action{
	Name:     "DeleteSnapshotGroup",
	required: []string{"RegionId", "SnapshotGroupId"},
	about:    [][2]string{{"snapshotgroup", "SnapshotGroupId"}},
	do:       deleteSnapshotGroup,
}

// deleteSnapshotGroup deletes a group and its snapshots. A snapshot that disks
// were made from stays, and the group with it: the reply tells.
func deleteSnapshotGroup(req *Request) (wire.Object, *wire.Refusal) {
	id := req.Params["SnapshotGroupId"]
	g, no := mustExist(req.Region.Group(id), "SnapshotGroupId", id)
	if no != nil {
		return nil, no
	}
	list := []wire.Object{}
	for _, n := range slices.Clone(g.Members) {
		status, code, message := "Success", "", ""
		if req.Region.MadeFrom(n) > 0 {
			status, code, message = "Failed", "SnapshotCreatedDisk", "The snapshot has been used to create disks."
		} else {
			req.Region.DeleteSnapshot(n)
		}
		list = append(list, wire.Object{
			"OperationStatus": status, "ErrorCode": code, "ErrorMsg": message,
			"RelatedItemSet": wire.Wrapped("RelatedItem", []wire.Object{{"Name": "SnapshotId", "Value": n.ID}}),
		})
	}
	if len(g.Members) == 0 {
		req.Region.DeleteGroup(g)
	}
	return wire.Object{"OperationProgressSet": wire.Wrapped("OperationProgress", list)}, nil
}
