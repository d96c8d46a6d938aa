package actions

import (
	"maps"
	"slices"

	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

var createSnapshotGroupAction = Action{
	Name:     "CreateSnapshotGroup",
	required: []string{"RegionId"},
	optional: []string{
		"InstanceId", "DiskId.N", "ExcludeDiskId.N", "Name", "Description", "ResourceGroupId", "ClientToken", "InstantAccess",
		"InstantAccessRetentionDays", "StorageLocationArn",
	},
	tagged: true,
	about:  [][2]string{{"disk", "DiskId"}, {"instance", "InstanceId"}},
	do:     createSnapshotGroup,
}

// How many disks, and how many GiB, a group takes.
const (
	maxGroupDisks = 16
	maxGroupSize  = 32 * 1024
)

// createSnapshotGroup starts to make snapshots of several disks, or returns
// the group that its ClientToken made before.
func createSnapshotGroup(req *Request) (wire.Object, *wire.Refusal) {
	id, no := underSnapshotToken(req, func(req *Request) (string, *wire.Refusal) {
		g, no := readGroup(req)
		if no != nil {
			return "", no
		}
		disks, no := groupDisks(req)
		if no != nil {
			return "", no
		}
		if no := checkGroup(req, disks); no != nil {
			return "", no
		}
		startSnapshotGroup(req, g, disks)
		return g.ID, nil
	})
	if no != nil {
		return nil, no
	}
	return wire.Object{"SnapshotGroupId": id}, nil
}

// readGroup reads what belongs to the group itself.
func readGroup(req *Request) (*state.SnapshotGroup, *wire.Refusal) {
	n := &state.Snapshot{}
	if no := readSnapshotTags(req, n); no != nil {
		return nil, no
	}
	g := &state.SnapshotGroup{
		Name: req.Params["Name"], Description: req.Params["Description"], Instance: req.Params["InstanceId"],
		ResourceGroup: n.ResourceGroup, Tags: n.Tags, Created: req.Now,
	}
	if g.Name != "" && !validName(g.Name) {
		return nil, badName("InvalidName.Malformed", "name")
	}
	if g.Description != "" && !validDescription(g.Description) {
		return nil, badDescription(400)
	}
	return g, nil
}

// groupDisks returns the disks that a request names, or those of its instance
// without those that it excludes.
func groupDisks(req *Request) ([]*state.Disk, *wire.Refusal) {
	ids, except, instanceID := req.Params.List("DiskId"), req.Params.List("ExcludeDiskId"), req.Params["InstanceId"]
	switch {
	case ids != nil && except != nil:
		return nil, wire.Refuse(400, "InvalidParameter.Conflict", "The parameters DiskId.N and ExcludeDiskId.N can't be given together.")
	case ids == nil && instanceID == "":
		return nil, wire.Missing("DiskId.N")
	case len(ids) > maxGroupDisks || len(except) > maxGroupDisks:
		return nil, tooManyDisks()
	}
	var i *state.Instance
	if instanceID != "" {
		var no *wire.Refusal
		if i, no = findInstance(req, instanceID); no != nil {
			return nil, no
		}
	}
	var disks []*state.Disk
	for _, id := range ids {
		d, no := findDisk(req, id)
		switch {
		case no != nil:
			return nil, no
		case i != nil && d.On(i) == nil:
			return nil, notAttached(d, i)
		case !slices.Contains(disks, d):
			disks = append(disks, d)
		}
	}
	if ids == nil {
		for _, a := range i.Attachments {
			if a.Phase == state.DiskInUse && !slices.Contains(except, a.Disk.ID) {
				disks = append(disks, a.Disk)
			}
		}
	}
	if len(disks) == 0 {
		return nil, wire.Missing("DiskId.N")
	}
	return disks, nil
}

func tooManyDisks() *wire.Refusal {
	return wire.Refuse(403, "NumberExceed.TooManyDisks", "The number of disks exceeds the limit of %d.", maxGroupDisks)
}

// checkGroup refuses disks that don't go together, or that no snapshot can be
// made of now.
func checkGroup(req *Request, disks []*state.Disk) *wire.Refusal {
	size := 0
	for _, d := range disks {
		size += d.Size
		spec := state.Categories[d.Category]
		switch {
		case d.MultiAttach:
			return wire.Refuse(403, "InvalidOperation.MultiAttachDisk", "The disk %s with MultiAttach does not support this operation.", d.ID)
		case !spec.Grouped:
			return wire.Refuse(400, "DiskCategory.OperationNotSupported", "The disk category %s does not support this operation.", d.Category)
		case spec.Regional != state.Categories[disks[0].Category].Regional:
			return wire.Refuse(403, "InvalidDisk.DiskCategoryInconsistent", "Regional disks go with regional disks only.")
		case d.Zone != disks[0].Zone:
			return wire.Refuse(400, "InvalidDiskIds.NotInSameZone", "The specified disks are not in the same zone.")
		}
	}
	switch {
	case len(disks) > maxGroupDisks:
		return tooManyDisks()
	case size > maxGroupSize:
		return wire.Refuse(403, "CapacityExceed.TooManyDisks", "The capacity of the disks, %d GiB, exceeds the limit of %d.", size, maxGroupSize)
	}
	for _, d := range disks {
		if no := checkSnapshot(req, d); no != nil {
			return no
		}
	}
	return nil
}

// startSnapshotGroup adds a group and a snapshot of each disk.
func startSnapshotGroup(req *Request, g *state.SnapshotGroup, disks []*state.Disk) {
	req.Region.AddGroup(g)
	for _, d := range disks {
		n := &state.Snapshot{Name: "Created_from_" + g.ID, Description: "Created_from_" + g.ID, ResourceGroup: g.ResourceGroup, Group: g}
		n.Tags = state.NewTagSet(maps.Clone(g.Tags.Current), req.Now)
		startSnapshot(req, d, n)
		g.Members = append(g.Members, n)
	}
}
