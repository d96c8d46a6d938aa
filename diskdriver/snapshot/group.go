package snapshot

import (
	"context"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/creation"
	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/params"
)

// GroupControllerGetCapabilities names what the group controller can do.
func (c *Controller) GroupControllerGetCapabilities(context.Context,
	*csi.GroupControllerGetCapabilitiesRequest) (*csi.GroupControllerGetCapabilitiesResponse, error) {
	return &csi.GroupControllerGetCapabilitiesResponse{Capabilities: []*csi.GroupControllerServiceCapability{{
		Type: &csi.GroupControllerServiceCapability_Rpc{Rpc: &csi.GroupControllerServiceCapability_RPC{
			Type: csi.GroupControllerServiceCapability_RPC_CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT,
		}},
	}}}, nil
}

// CreateVolumeGroupSnapshot makes the group of a name, or answers with the one
// that was made before, as soon as all its members are taken (CSI spec,
// CreateVolumeGroupSnapshot).
func (c *Controller) CreateVolumeGroupSnapshot(ctx context.Context,
	req *csi.CreateVolumeGroupSnapshotRequest) (*csi.CreateVolumeGroupSnapshotResponse, error) {
	if err := disk.CheckName(req.GetName()); err != nil {
		return nil, err
	}
	sources, err := sourcesOf(req.GetSourceVolumeIds())
	if err != nil {
		return nil, err
	}
	class, err := params.ParseGroupClass(req.GetParameters(), c.config.Unknown)
	if err != nil {
		return nil, err
	}
	warnOf(class.Warnings, "group", req.GetName())
	if err := disk.CheckRoom("snapshotTags", class.Tags, c.config.ExtraTags); err != nil {
		return nil, err
	}
	group, err := c.takeGroup(ctx, class.Group(req.GetName(), c.config.Owner.Cluster, sources))
	if err != nil {
		return nil, err
	}
	return &csi.CreateVolumeGroupSnapshotResponse{GroupSnapshot: c.group(group)}, nil
}

// sourcesOf returns the volumes of a group, sorted: their order means nothing.
func sourcesOf(ids []string) ([]disk.ID, error) {
	var sources []disk.ID
	for _, id := range ids {
		if id == "" {
			return nil, disk.Errorf(disk.Invalid, "source_volume_ids: one of them is empty")
		}
		sources = append(sources, disk.ID(id))
	}
	if len(sources) == 0 {
		return nil, disk.Errorf(disk.Invalid, "source_volume_ids are missing")
	}
	slices.Sort(sources)
	return slices.Compact(sources), nil
}

// takeGroup makes a group, or finds the one that was made before, and waits until
// its members are taken.
func (c *Controller) takeGroup(ctx context.Context, spec disk.GroupSpec) (disk.Group, error) {
	const ofGroup = "group " // tells its client tokens from those of a snapshot of the same name
	name := ofGroup + spec.Name
	spec.Tags = spec.Tags.And(c.config.ExtraTags)
	return taking[disk.Group, disk.GroupID]{
		records: c.groupRecords, name: name,
		id: func(group disk.Group) disk.GroupID { return group.ID },
		create: func(ctx context.Context, token disk.Token) (disk.GroupID, error) {
			if err := c.checkSources(ctx, spec.Sources...); err != nil {
				return "", err
			}
			return c.ecs.CreateGroup(ctx, spec, token)
		},
		find: func(ctx context.Context) ([]disk.Group, error) {
			groups, err := c.ecs.FindGroups(ctx, spec.Marks)
			return slices.DeleteFunc(groups, func(group disk.Group) bool { return c.config.Owner.IsOthers(group.Tags) }), err
		},
		matches: spec.Matches, whole: func(group disk.Group) bool { return group.Taken() && group.State != disk.Failed },
		await: func(ctx context.Context, id disk.GroupID) (disk.Group, error) {
			group, err := c.ecs.AwaitGroup(ctx, id, func(group disk.Group) (bool, error) {
				return group.Taken() || group.State == disk.Failed, nil
			})
			if group.State == disk.Failed {
				return group, c.failedGroup(ctx, name, group)
			}
			return group, notRead(err)
		},
		checkGone: func(ctx context.Context, _ disk.GroupID) error { return c.ecs.CheckGroups(ctx) },
	}.take(ctx)
}

// failedGroup is the error of a group that has failed. If nobody knows its ID, as
// before all of it was taken, it goes now (CSI spec, CreateVolumeGroupSnapshot: the
// plugin cleans up).
func (c *Controller) failedGroup(ctx context.Context, name string, group disk.Group) error {
	if group.Taken() && mayBeKnown(c.groupRecords, name, group.Moment()) {
		return disk.Errorf(disk.Unexpected, "snapshot group %s has failed; delete it", group.ID)
	}
	if err := c.ecs.DeleteGroup(ctx, group.ID); err != nil {
		return disk.Errorf(disk.Pending, "snapshot group %s has failed, and deleting it failed too: %w", group.ID, err)
	}
	klog.InfoS("Deleted a snapshot group that has failed", "group", group.ID)
	c.groupRecords.Update(name, time.Now(), (*creation.Record).Gone)
	return disk.Errorf(disk.Unexpected, "snapshot group %s has failed; it is deleted, and the next call makes another", group.ID)
}

// group is what is told of a group.
func (c *Controller) group(group disk.Group) *csi.VolumeGroupSnapshot {
	answer := &csi.VolumeGroupSnapshot{GroupSnapshotId: string(group.ID), CreationTime: timestamppb.New(group.Moment()), ReadyToUse: true}
	for _, shot := range group.Members {
		answer.Snapshots = append(answer.Snapshots, c.config.snapshot(shot))
		answer.ReadyToUse = answer.ReadyToUse && shot.Usable
	}
	return answer
}

// DeleteVolumeGroupSnapshot deletes a group with its members, in whatever state
// it is; one that doesn't exist is deleted (CSI spec,
// DeleteVolumeGroupSnapshot). Nothing goes that the caller doesn't name.
func (c *Controller) DeleteVolumeGroupSnapshot(ctx context.Context,
	req *csi.DeleteVolumeGroupSnapshotRequest) (*csi.DeleteVolumeGroupSnapshotResponse, error) {
	id := disk.GroupID(req.GetGroupSnapshotId())
	if id == "" {
		return nil, disk.Errorf(disk.Invalid, "group_snapshot_id is missing")
	}
	group, err := c.ecs.GetGroup(ctx, id)
	switch {
	case disk.KindOf(err) == disk.NotFound: // which proves nothing: a group that is there may be another cluster's
		if err = c.ecs.AskGroupGone(ctx, id); err == nil {
			return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
		}
		if disk.KindOf(err) == disk.Denied {
			err = c.checkMembers(ctx, id, req.GetSnapshotIds())
		}
	case err == nil:
		if err = c.config.Owner.CheckGroup(group); err == nil {
			err = namesAll(group, req.GetSnapshotIds())
		}
	}
	if err == nil {
		err = c.ecs.DeleteGroup(ctx, id)
	}
	if err != nil {
		return nil, err
	}
	return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
}

// checkMembers checks the members that a request names of a group that no read shows, where the credentials may not ask whether it is there:
// RAM has no condition for the deletion of a group. Denied: one is another's, or the request names none.
func (c *Controller) checkMembers(ctx context.Context, id disk.GroupID, ids []string) error {
	if len(ids) == 0 {
		return disk.Errorf(disk.Denied, "group_snapshot_id: ECS doesn't show %s, and whether it is gone can't be told: allow ecs:UntagResources for snapshotgroup/*", id)
	}
	for _, member := range ids {
		shot, err := c.ecs.GetSnapshot(ctx, disk.SnapshotID(member))
		switch {
		case disk.KindOf(err) == disk.NotFound:
		case err != nil:
			return err
		default:
			if err := c.config.Owner.CheckSnapshot(shot); err != nil {
				return err
			}
		}
	}
	return nil
}

// namesAll refuses a list of snapshots that lacks a member of the group. Members
// that are named and gone are no mismatch: an earlier call may have got so far.
// No list at all says nothing.
func namesAll(group disk.Group, ids []string) error {
	for _, shot := range group.Members {
		if len(ids) > 0 && !slices.Contains(ids, string(shot.ID)) {
			return disk.Errorf(disk.Invalid, "snapshot_ids: %s is part of the group snapshot %s and is not among them", shot.ID, group.ID)
		}
	}
	return nil
}

// GetVolumeGroupSnapshot says what a group is (CSI spec,
// GetVolumeGroupSnapshot); NotFound if there is none.
func (c *Controller) GetVolumeGroupSnapshot(ctx context.Context, req *csi.GetVolumeGroupSnapshotRequest) (*csi.GetVolumeGroupSnapshotResponse, error) {
	id := disk.GroupID(req.GetGroupSnapshotId())
	if id == "" {
		return nil, disk.Errorf(disk.Invalid, "group_snapshot_id is missing")
	}
	group, err := c.ecs.GetGroup(ctx, id)
	err = confirmMissing(err, func() error { return c.ecs.AskGroupGone(ctx, id) })
	if err == nil {
		err = namesAll(group, req.GetSnapshotIds())
	}
	if err == nil {
		err = hasAll(group, req.GetSnapshotIds())
	}
	switch {
	case err != nil:
		return nil, err
	case group.State == disk.Failed:
		return nil, disk.Errorf(disk.Unexpected, "snapshot group %s has failed; delete it", id)
	case !group.Taken():
		return nil, disk.Errorf(disk.Pending, "snapshot group %s: not all of it is taken yet", id)
	}
	return &csi.GetVolumeGroupSnapshotResponse{GroupSnapshot: c.group(group)}, nil
}

// hasAll refuses a list of snapshots that names one which is no member.
func hasAll(group disk.Group, ids []string) error {
	for _, id := range ids {
		if !slices.ContainsFunc(group.Members, func(s disk.Snapshot) bool { return string(s.ID) == id }) {
			return disk.Errorf(disk.Invalid, "snapshot_ids: %s is not part of the group snapshot %s", id, group.ID)
		}
	}
	return nil
}
