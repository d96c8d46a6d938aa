package ecs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	sdkecs "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/batch"
	"github.com/topodisk/topodisk/diskdriver/ecs/internal/redact"
	"github.com/topodisk/topodisk/diskdriver/ecs/transport"
)

// CreateGroup asks for snapshots of several disks at one point in time, under a
// client token, and returns the ID of the group. No read has shown it yet.
//
// NotFound: one of the disks doesn't exist. Blocked: they don't go together.
// Mismatch: the token was used with other parameters.
func (c *Client) CreateGroup(ctx context.Context, spec disk.GroupSpec, token disk.Token) (disk.GroupID, error) {
	if token == "" {
		return "", &disk.Error{Op: transport.CreateSnapshotGroup.Name, Kind: disk.Invalid, Err: errNoToken}
	}
	reply, err := transport.CreateSnapshotGroup.Send(ctx, c.session, func(r *sdkecs.CreateSnapshotGroupRequest) {
		r.ClientToken = string(token)
		r.Name = disk.DisplayName(spec.Name)
		r.ResourceGroupId = spec.ResourceGroupID
		r.DiskId = list(spec.Sources...)
		setTags(r, spec.Tags)
	})
	if err != nil {
		return "", err
	}
	return disk.GroupID(reply.SnapshotGroupId), nil
}

// GetGroup reads one group with its members as DescribeSnapshots shows them.
// NotFound: ECS doesn't show it.
func (c *Client) GetGroup(ctx context.Context, id disk.GroupID) (disk.Group, error) {
	got, err := c.groups.Once(ctx, id)
	if err == nil && !got.Found {
		err = c.groups.NotFound(id)
	}
	return got.Value, err
}

// AwaitGroup is to groups what AwaitSnapshot is to snapshots: all who wait share
// calls, one for ten groups and one for a hundred members.
func (c *Client) AwaitGroup(ctx context.Context, id disk.GroupID, seen func(disk.Group) (done bool, err error)) (disk.Group, error) {
	return c.groups.Poll(ctx, id, snapshotPauses, seen, func(disk.Group) string { return fmt.Sprintf("snapshot group %s is not cut yet", id) })
}

// groupForm is the form of the IDs that ECS gives to groups.
var groupForm = regexp.MustCompile(`^ssg-[0-9a-z]{1,60}$`)

// mostGroups is how many IDs one DescribeSnapshotGroups takes (ECS API,
// SnapshotGroupId.N).
const mostGroups = 10

// groupsByID reads groups with all their members.
func (c *Client) groupsByID(ctx context.Context, ids []disk.GroupID) (map[disk.GroupID]disk.Group, error) {
	var all []disk.Group
	for some := range slices.Chunk(ids, mostGroups) {
		groups, err := c.describeGroups(ctx, func(r *sdkecs.DescribeSnapshotGroupsRequest) {
			r.SnapshotGroupId = list(some...)
		})
		if err != nil {
			return nil, err
		}
		// An answer to some other question must not pass for this one.
		all = append(all, slices.DeleteFunc(groups, func(g disk.Group) bool { return !slices.Contains(some, g.ID) })...)
	}
	if err := c.fillMembers(ctx, all); err != nil {
		return nil, err
	}
	return byKey(all, func(g disk.Group) disk.GroupID { return g.ID }), nil
}

// FindGroups returns every group that has all the tags, without what only
// DescribeSnapshots shows of its members. None is no error, and no proof either.
func (c *Client) FindGroups(ctx context.Context, tags disk.Tags) ([]disk.Group, error) {
	groups, err := c.describeGroups(ctx, func(r *sdkecs.DescribeSnapshotGroupsRequest) {
		setTags(r, tags)
	})
	return slices.DeleteFunc(groups, func(g disk.Group) bool { return !g.Tags.Have(tags) }), err
}

// CheckGroups returns nil if ECS shows any group. Denied, with disk.ErrUntold: it shows none at all, as
// to an account without the permission to see any. No call tells of one group
// whether ECS knows it.
func (c *Client) CheckGroups(ctx context.Context) error {
	shown, err := c.describeGroups(ctx, func(*sdkecs.DescribeSnapshotGroupsRequest) {})
	if err != nil || len(shown) > 0 {
		return err
	}
	return &disk.Error{Op: transport.DescribeSnapshotGroups.Name, Kind: disk.Denied, Err: errNoGroups}
}

var errNoGroups = fmt.Errorf("ECS shows these credentials no snapshot group at all, in the whole region: %w; "+
	"is ecs:DescribeSnapshotGroups allowed for all groups?", disk.ErrUntold)

// describeGroups reads all pages of DescribeSnapshotGroups.
func (c *Client) describeGroups(ctx context.Context, fill func(*sdkecs.DescribeSnapshotGroupsRequest)) ([]disk.Group, error) {
	return everyPage(transport.DescribeSnapshotGroups.Name, func(token string) ([]disk.Group, string, error) {
		reply, err := transport.DescribeSnapshotGroups.Send(ctx, c.session, func(r *sdkecs.DescribeSnapshotGroupsRequest) {
			r.MaxResults = integer(batch.Size)
			r.NextToken = token
			fill(r)
		})
		if err != nil {
			return nil, "", err
		}
		var page []disk.Group
		for _, g := range reply.SnapshotGroups.SnapshotGroup {
			page = append(page, groupFromECS(g))
		}
		return page, reply.NextToken, nil
	})
}

// fillMembers reads the members of groups: a group alone shows neither their sizes nor
// their points in time.
func (c *Client) fillMembers(ctx context.Context, groups []disk.Group) error {
	var ids []disk.SnapshotID
	for _, g := range groups {
		for _, member := range g.Members {
			ids = append(ids, member.ID)
		}
	}
	shown := make(map[disk.SnapshotID]disk.Snapshot, len(ids))
	for some := range slices.Chunk(ids, batch.Size) {
		shots, err := c.snapshotsByID(ctx, some)
		if err != nil {
			return err
		}
		maps.Copy(shown, shots)
	}
	for _, g := range groups {
		for i, member := range g.Members {
			if shot, ok := shown[member.ID]; ok {
				shot.Group = g.ID
				g.Members[i] = shot
			}
		}
	}
	return nil
}

// AskGroupGone is to groups what askGone is to all resources.
func (c *Client) AskGroupGone(ctx context.Context, id disk.GroupID) error {
	if !groupForm.MatchString(string(id)) {
		return nil // ECS gives out no such ID
	}
	return c.askGone(ctx, "snapshotgroup", string(id))
}

// DeleteGroup deletes a group and its members, also those that disks were made
// from; those stay. A group that ECS says it doesn't know is deleted.
func (c *Client) DeleteGroup(ctx context.Context, id disk.GroupID) error {
	if !possibleID.MatchString(string(id)) {
		return nil // such a group can't be
	}
	kept, err := c.deleteGroup(ctx, id)
	if err != nil || len(kept) == 0 {
		return err
	}
	for _, member := range kept {
		if err := c.DeleteSnapshot(ctx, member.id); err != nil {
			return fmt.Errorf("snapshot %s stays (%s): %w", member.id, member.why, err)
		}
	}
	if kept, err = c.deleteGroup(ctx, id); err == nil && len(kept) > 0 {
		err = &disk.Error{Op: transport.DeleteSnapshotGroup.Name, Kind: disk.InUse, Err: fmt.Errorf("snapshot %s stays: %s", kept[0].id, kept[0].why)}
	}
	return err
}

// keptMember is a member that ECS didn't delete with its group.
type keptMember struct {
	id  disk.SnapshotID
	why string
}

// deleteGroup makes one DeleteSnapshotGroup and returns the members that are
// still there.
func (c *Client) deleteGroup(ctx context.Context, id disk.GroupID) ([]keptMember, error) {
	reply, err := transport.DeleteSnapshotGroup.Send(ctx, c.session, func(r *sdkecs.DeleteSnapshotGroupRequest) { r.SnapshotGroupId = string(id) })
	if disk.KindOf(err) == disk.NotFound {
		return nil, nil // an absent group has been deleted
	}
	if err != nil {
		return nil, err
	}
	var kept []keptMember
	for _, p := range reply.OperationProgressSet.OperationProgress {
		if p.OperationStatus != "Failed" {
			continue
		}
		why := redact.Text(p.ErrorCode + ": " + p.ErrorMsg)
		at := slices.IndexFunc(p.RelatedItemSet.RelatedItem, func(i sdkecs.RelatedItem) bool { return i.Name == "SnapshotId" })
		if at < 0 {
			kind := transport.DeleteSnapshotGroup.KindOf(403, p.ErrorCode, p.ErrorMsg)
			return nil, &disk.Error{Op: transport.DeleteSnapshotGroup.Name, Kind: kind, RequestID: reply.RequestId, Err: errors.New(why)}
		}
		kept = append(kept, keptMember{disk.SnapshotID(p.RelatedItemSet.RelatedItem[at].Value), why})
	}
	return kept, nil
}

// groupFromECS translates a snapshot group of ECS.
func groupFromECS(g sdkecs.SnapshotGroup) disk.Group {
	tags := tagsFromECS(g.Tags.Tag)
	group := disk.Group{
		ID: disk.GroupID(g.SnapshotGroupId), Name: tags[disk.GroupNameTag],
		Created: timeFromECS(g.CreationTime), State: disk.SnapshotState(g.Status), Tags: tags,
	}
	for _, s := range g.Snapshots.Snapshot {
		group.Members = append(group.Members, disk.Snapshot{ID: disk.SnapshotID(s.SnapshotId), Source: disk.ID(s.SourceDiskId), Group: group.ID})
	}
	slices.SortFunc(group.Members, disk.CompareSnapshots)
	return group
}
