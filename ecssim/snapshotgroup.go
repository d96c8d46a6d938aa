package ecssim

import (
	"maps"
	"slices"
	"time"

	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/wire"
)

var (
	createSnapshotGroup = action{
		name:     "CreateSnapshotGroup",
		required: []string{"RegionId"},
		optional: []string{
			"InstanceId", "DiskId.N", "ExcludeDiskId.N", "Name", "Description", "ResourceGroupId", "ClientToken", "InstantAccess",
			"InstantAccessRetentionDays", "StorageLocationArn", "Tag.N.Key", "Tag.N.Value", "Tag.N.key", "Tag.N.value",
		},
		do: (*Server).createSnapshotGroup,
	}
	deleteSnapshotGroup = action{
		name:     "DeleteSnapshotGroup",
		required: []string{"RegionId", "SnapshotGroupId"},
		do:       (*Server).deleteSnapshotGroup,
	}
	describeSnapshotGroups = action{
		name:     "DescribeSnapshotGroups",
		required: []string{"RegionId"},
		optional: []string{
			"SnapshotGroupId.N", "Name", "InstanceId", "Status.N", "AdditionalAttributes.N", "ResourceGroupId", "NextToken", "MaxResults",
			"Tag.N.Key", "Tag.N.Value", "Tag.N.key", "Tag.N.value",
		},
		do: (*Server).describeSnapshotGroups,
	}
)

// How many disks, and how many GiB, a group takes.
const (
	maxGroupDisks = 16
	maxGroupSize  = 32 * 1024
)

// snapshotGroup is the snapshots of several disks at one point in time.
type snapshotGroup struct {
	seq               int // in the order of creation
	id                string
	name, description string
	instance          string
	resourceGroup     string
	created           time.Time
	tags              tagSet
	members           []*snapshot // those that exist
}

// status is progressing while a member is, failed if one has failed.
func (g *snapshotGroup) status() string {
	has := func(status string) bool {
		return slices.ContainsFunc(g.members, func(n *snapshot) bool { return n.status == status })
	}
	switch {
	case has(shotProgressing):
		return shotProgressing
	case has(shotFailed):
		return shotFailed
	}
	return shotAccomplished
}

// createSnapshotGroup starts to make snapshots of several disks, or returns
// the group that its ClientToken made before.
func (s *Server) createSnapshotGroup(x *exchange) (wire.Object, *wire.Refusal) {
	id, no := s.underToken(x, func() (string, *wire.Refusal) {
		g, no := s.readGroup(x)
		if no != nil {
			return "", no
		}
		disks, no := s.groupDisks(x)
		if no != nil {
			return "", no
		}
		if no := s.checkGroup(disks); no != nil {
			return "", no
		}
		s.shootGroup(x, g, disks)
		return g.id, nil
	})
	if no != nil {
		return nil, no
	}
	return wire.Object{"SnapshotGroupId": id}, nil
}

// readGroup reads what belongs to the group itself.
func (s *Server) readGroup(x *exchange) (*snapshotGroup, *wire.Refusal) {
	n := &snapshot{}
	if no := s.readShotTags(x, n); no != nil {
		return nil, no
	}
	g := &snapshotGroup{
		name: x.Params["Name"], description: x.Params["Description"], instance: x.Params["InstanceId"],
		resourceGroup: n.resourceGroup, tags: n.tags, created: x.now,
	}
	if g.name != "" && !validName(g.name) {
		return nil, badName("InvalidName.Malformed", "name")
	}
	if g.description != "" && !validDescription(g.description) {
		return nil, badDescription(400)
	}
	return g, nil
}

// groupDisks returns the disks that a request names, or those of its instance
// without those that it excludes.
func (s *Server) groupDisks(x *exchange) ([]*disk, *wire.Refusal) {
	ids, except, instanceID := x.Params.List("DiskId"), x.Params.List("ExcludeDiskId"), x.Params["InstanceId"]
	switch {
	case ids != nil && except != nil:
		return nil, wire.Refuse(400, "InvalidParameter.Conflict", "The parameters DiskId.N and ExcludeDiskId.N can't be given together.")
	case ids == nil && instanceID == "":
		return nil, wire.Missing("DiskId.N")
	case len(ids) > maxGroupDisks || len(except) > maxGroupDisks:
		return nil, tooManyDisks()
	}
	var i *instance
	if instanceID != "" {
		var no *wire.Refusal
		if i, no = s.findInstance(instanceID); no != nil {
			return nil, no
		}
	}
	var disks []*disk
	for _, id := range ids {
		d, no := s.findDisk(id)
		switch {
		case no != nil:
			return nil, no
		case i != nil && d.on(i) == nil:
			return nil, notAttached(d, i)
		case !slices.Contains(disks, d):
			disks = append(disks, d)
		}
	}
	if ids == nil {
		for _, a := range i.attachments {
			if a.phase == diskInUse && !slices.Contains(except, a.disk.id) {
				disks = append(disks, a.disk)
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
func (s *Server) checkGroup(disks []*disk) *wire.Refusal {
	size := 0
	for _, d := range disks {
		size += d.size
		spec := categories[d.category]
		switch {
		case d.multiAttach:
			return wire.Refuse(403, "InvalidOperation.MultiAttachDisk", "The disk %s with MultiAttach does not support this operation.", d.id)
		case !spec.grouped:
			return wire.Refuse(400, "DiskCategory.OperationNotSupported", "The disk category %s does not support this operation.", d.category)
		case spec.regional != categories[disks[0].category].regional:
			return wire.Refuse(403, "InvalidDisk.DiskCategoryInconsistent", "Regional disks go with regional disks only.")
		case d.zone != disks[0].zone:
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
		if no := s.checkShot(d); no != nil {
			return no
		}
	}
	return nil
}

// shootGroup adds a group and a snapshot of each disk.
func (s *Server) shootGroup(x *exchange, g *snapshotGroup, disks []*disk) {
	g.id = s.ids.resource(groupPrefix)
	s.snapshots.groupsMade++
	g.seq = s.snapshots.groupsMade
	s.snapshots.groups = append(s.snapshots.groups, g)
	for _, d := range disks {
		n := &snapshot{name: "Created_from_" + g.id, description: "Created_from_" + g.id, resourceGroup: g.resourceGroup, group: g}
		n.tags = newTagSet(maps.Clone(g.tags.current), x.now)
		s.shoot(x, d, n)
		g.members = append(g.members, n)
	}
}

// deleteSnapshotGroup deletes a group and its snapshots. A snapshot that disks
// were made from stays, and the group with it: the reply tells.
func (s *Server) deleteSnapshotGroup(x *exchange) (wire.Object, *wire.Refusal) {
	id := x.Params["SnapshotGroupId"]
	at := slices.IndexFunc(s.snapshots.groups, func(g *snapshotGroup) bool { return g.id == id })
	if at < 0 {
		return nil, wire.Refuse(404, "InvalidSnapshotGroupId.NotFound", "The specified SnapshotGroupId %q does not exist.", id)
	}
	g := s.snapshots.groups[at]
	list := []wire.Object{}
	for _, n := range slices.Clone(g.members) {
		status, code, message := "Success", "", ""
		if s.madeFrom(n) > 0 {
			status, code, message = "Failed", "SnapshotCreatedDisk", "The snapshot has been used to create disks."
		} else {
			s.earlier.touchShot(n)
			s.snapshots.remove(n)
		}
		list = append(list, wire.Object{
			"OperationStatus": status, "ErrorCode": code, "ErrorMsg": message,
			"RelatedItemSet": wire.Wrapped("RelatedItem", []wire.Object{{"Name": "SnapshotId", "Value": n.id}}),
		})
	}
	if len(g.members) == 0 {
		s.earlier.touch(g.id)
		s.snapshots.groups = slices.Delete(s.snapshots.groups, at, at+1)
	}
	return wire.Object{"OperationProgressSet": wire.Wrapped("OperationProgress", list)}, nil
}

// describeSnapshotGroups shows the groups that pass every filter, the newest
// first.
func (s *Server) describeSnapshotGroups(x *exchange) (wire.Object, *wire.Refusal) {
	ids, states := x.Params.List("SnapshotGroupId"), x.Params.List("Status")
	for _, status := range states {
		if !slices.Contains(shotStates[:3], status) {
			return nil, wire.Refuse(400, "InvalidParameter", "The specified parameter Status.N %q is not valid: %s.", status, config.List(shotStates[:3]))
		}
	}
	tags, no := x.Params.Tags()
	if no != nil {
		return nil, no
	}
	page, no := s.readTokenPage(x, wire.Paging{MinResults: 10, MaxResults: 100})
	if no != nil {
		return nil, no
	}
	var found []*snapshotGroup
	for g := range s.groupsFor(x) {
		if (ids == nil || slices.Contains(ids, g.id)) && (states == nil || slices.Contains(states, g.status())) && x.Params.OneOf("Name", g.name) &&
			x.Params.OneOf("InstanceId", g.instance) && x.Params.OneOf("ResourceGroupId", g.resourceGroup) &&
			wire.HasTags(g.tags.searched(x.now, s.timing.TagsVisible), tags) {
			found = append(found, g)
		}
	}
	shown, reply := wire.Cut(page, found, func(g *snapshotGroup) int { return -g.seq })
	reply["SnapshotGroups"] = wire.Wrapped("SnapshotGroup", wire.Each(shown, func(g *snapshotGroup) wire.Object { return s.renderGroup(g, x.now) }))
	return reply, nil
}

// renderGroup shows a group. Its members lack the size of their source and their
// CreationTime: DescribeSnapshots has those.
func (s *Server) renderGroup(g *snapshotGroup, now time.Time) wire.Object {
	members := wire.Each(g.members, func(n *snapshot) wire.Object {
		percent, _ := n.progress(now)
		return wire.Object{
			"SnapshotId": n.id, "SourceDiskId": n.diskID, "SourceDiskType": n.disk.kind(), "Progress": percentText(percent), "Available": n.usable(now),
			"InstantAccess": categories[n.category].instant, "InstantAccessRetentionDays": 0, "Tags": wire.Wrapped("Tag", s.tags(n.tags)),
		}
	})
	return wire.Object{
		"SnapshotGroupId": g.id, "Name": g.name, "Description": g.description, "InstanceId": g.instance, "ResourceGroupId": g.resourceGroup,
		"Status": g.status(), "ProgressStatus": "", "CreationTime": wire.Stamp(g.created), "Tags": wire.Wrapped("Tag", s.tags(g.tags)),
		"Snapshots": wire.Wrapped("Snapshot", members),
	}
}
