package actions

import (
	"slices"
	"time"

	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

var describeSnapshotGroupsAction = Action{
	Name:     "DescribeSnapshotGroups",
	required: []string{"RegionId"},
	optional: []string{
		"SnapshotGroupId.N", "Name", "InstanceId", "Status.N", "AdditionalAttributes.N", "ResourceGroupId", "NextToken", "MaxResults",
	},
	tagged: true,
	lags:   true,
	do:     describeSnapshotGroups,
}

// describeSnapshotGroups shows the groups that pass every filter, the newest
// first.
func describeSnapshotGroups(req *Request) (wire.Object, *wire.Refusal) {
	ids, states := req.Params.List("SnapshotGroupId"), req.Params.List("Status")
	for _, status := range states {
		if !slices.Contains(state.SnapshotStates[:3], status) {
			return nil, wire.Refuse(400, "InvalidParameter", "The specified parameter Status.N %q is not valid: %s.", status, config.List(state.SnapshotStates[:3]))
		}
	}
	tags, no := req.Params.Tags()
	if no != nil {
		return nil, no
	}
	page, no := readTokenPage(req, wire.Paging{MinResults: 10, MaxResults: 100})
	if no != nil {
		return nil, no
	}
	var found []*state.SnapshotGroup
	for g := range groupsFor(req) {
		if (ids == nil || slices.Contains(ids, g.ID)) && (states == nil || slices.Contains(states, g.Status())) && req.Params.OneOf("Name", g.Name) &&
			req.Params.OneOf("InstanceId", g.Instance) && req.Params.OneOf("ResourceGroupId", g.ResourceGroup) &&
			wire.HasTags(g.Tags.Searched(req.Now, req.Timing.TagsVisible), tags) {
			found = append(found, g)
		}
	}
	shown, reply := wire.Cut(page, found, func(g *state.SnapshotGroup) int { return -g.Seq })
	reply["SnapshotGroups"] = wire.Wrapped("SnapshotGroup", wire.Each(shown, func(g *state.SnapshotGroup) wire.Object { return renderGroup(req, g, req.Now) }))
	return reply, nil
}

// renderGroup shows a group. Its members lack the size of their source and their
// CreationTime: DescribeSnapshots has those.
func renderGroup(req *Request, g *state.SnapshotGroup, now time.Time) wire.Object {
	members := wire.Each(g.Members, func(n *state.Snapshot) wire.Object {
		percent, _ := n.Progress(now)
		return wire.Object{
			"SnapshotId": n.ID, "SourceDiskId": n.DiskID, "SourceDiskType": n.Disk.Kind(), "Progress": percentText(percent), "Available": n.Usable(now),
			"InstantAccess": state.Categories[n.Category].Instant, "InstantAccessRetentionDays": 0, "Tags": renderTags(req, n.Tags),
		}
	})
	return wire.Object{
		"SnapshotGroupId": g.ID, "Name": g.Name, "Description": g.Description, "InstanceId": g.Instance, "ResourceGroupId": g.ResourceGroup,
		"Status": g.Status(), "ProgressStatus": "", "CreationTime": wire.Stamp(g.Created), "Tags": renderTags(req, g.Tags),
		"Snapshots": wire.Wrapped("Snapshot", members),
	}
}
