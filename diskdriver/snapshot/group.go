package snapshot

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/creation"
	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/params"
)

// GroupController answers the CSI GroupController service. ECS takes the
// snapshots of a group at the same moment.
type GroupController struct {
	csi.UnimplementedGroupControllerServer
	config  Config
	ecs     groupECS
	records *creation.Table
}

type groupECS interface {
	Groups
	GetSnapshot(ctx context.Context, id disk.SnapshotID) (disk.Snapshot, error)
	Disks
}

// NewGroupController returns a GroupController.
func NewGroupController(config Config, ecs groupECS) *GroupController {
	return &GroupController{config: config, ecs: ecs, records: creation.NewTable()}
}

// GroupControllerGetCapabilities names what the group controller can do.
func (g *GroupController) GroupControllerGetCapabilities(context.Context,
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
func (g *GroupController) CreateVolumeGroupSnapshot(ctx context.Context,
	req *csi.CreateVolumeGroupSnapshotRequest) (*csi.CreateVolumeGroupSnapshotResponse, error) {
	if err := disk.CheckName(req.GetName()); err != nil {
		return nil, err
	}
	sources, err := sourcesOf(req.GetSourceVolumeIds())
	if err != nil {
		return nil, err
	}
	class, err := params.ParseGroupClass(req.GetParameters(), g.config.Unknown)
	if err != nil {
		return nil, err
	}
	warnOf(class.Warnings, "group", req.GetName())
	if err := disk.CheckRoom("snapshotTags", class.Tags, g.config.ExtraTags); err != nil {
		return nil, err
	}
	group, err := g.takeGroup(ctx, class.Group(req.GetName(), g.config.ClusterID, sources))
	if err != nil {
		return nil, err
	}
	return &csi.CreateVolumeGroupSnapshotResponse{GroupSnapshot: g.group(group)}, nil
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
func (g *GroupController) takeGroup(ctx context.Context, spec disk.GroupSpec) (disk.Group, error) {
	const ofGroup = "group " // tells its Record from that of a snapshot of the same name
	name := ofGroup + spec.Name
	spec.Tags = spec.Tags.And(g.config.ExtraTags)
	return taking[disk.Group, disk.GroupID]{
		records: g.records, name: name,
		id: func(group disk.Group) disk.GroupID { return group.ID },
		create: func(ctx context.Context, token disk.Token) (disk.GroupID, error) {
			if err := checkSources(ctx, g.ecs, g.config.Owner, spec.Sources...); err != nil {
				return "", err
			}
			return g.ecs.CreateGroup(ctx, spec, token)
		},
		find: func(ctx context.Context) ([]disk.Group, error) {
			groups, err := g.ecs.FindGroups(ctx, spec.Marks)
			return slices.DeleteFunc(groups, func(group disk.Group) bool { return g.config.Owner.IsOthers(group.Tags) }), err
		},
		matches: spec.Matches, whole: func(group disk.Group) bool { return group.Taken() && group.State != disk.Failed },
		await: func(ctx context.Context, id disk.GroupID) (disk.Group, error) {
			group, err := g.ecs.AwaitGroup(ctx, id, func(group disk.Group) (bool, error) {
				return group.Taken() || group.State == disk.Failed, nil
			})
			if group.State == disk.Failed {
				return group, g.failedGroup(ctx, name, group)
			}
			return group, notRead(err)
		},
		checkGone: func(ctx context.Context, _ disk.GroupID) error { return g.ecs.CheckGroups(ctx) },
	}.take(ctx)
}

// failedGroup is the error of a group that has failed. If nobody knows its ID, as
// before all of it was taken, it goes now (CSI spec, CreateVolumeGroupSnapshot: the
// plugin cleans up).
func (g *GroupController) failedGroup(ctx context.Context, name string, group disk.Group) error {
	if group.Taken() && mayBeKnown(g.records, name, group.Moment()) {
		return disk.Errorf(disk.Unexpected, "snapshot group %s has failed; delete it", group.ID)
	}
	if err := g.ecs.DeleteGroup(ctx, group.ID); err != nil {
		return notDeleted(fmt.Sprintf("snapshot group %s has failed", group.ID), err)
	}
	klog.InfoS("Deleted a snapshot group that has failed", "group", group.ID)
	g.records.Update(name, time.Now(), (*creation.Record).Gone)
	return disk.Errorf(disk.Unexpected, "snapshot group %s has failed; it is deleted, and the next call makes another", group.ID)
}

// group is what is told of a group.
func (g *GroupController) group(group disk.Group) *csi.VolumeGroupSnapshot {
	answer := &csi.VolumeGroupSnapshot{GroupSnapshotId: string(group.ID), CreationTime: timestamppb.New(group.Moment()), ReadyToUse: true}
	for _, shot := range group.Members {
		answer.Snapshots = append(answer.Snapshots, g.config.snapshot(shot))
		answer.ReadyToUse = answer.ReadyToUse && shot.Usable
	}
	return answer
}

// DeleteVolumeGroupSnapshot deletes a group with its members, in whatever state
// it is; one that doesn't exist is deleted (CSI spec,
// DeleteVolumeGroupSnapshot). Nothing goes that the caller doesn't name.
func (g *GroupController) DeleteVolumeGroupSnapshot(ctx context.Context,
	req *csi.DeleteVolumeGroupSnapshotRequest) (*csi.DeleteVolumeGroupSnapshotResponse, error) {
	id := disk.GroupID(req.GetGroupSnapshotId())
	if id == "" {
		return nil, disk.Errorf(disk.Invalid, "group_snapshot_id is missing")
	}
	group, err := g.ecs.GetGroup(ctx, id)
	switch {
	case disk.KindOf(err) == disk.NotFound: // which proves nothing: a group that is there may be another cluster's
		if err = g.ecs.AskGroupGone(ctx, id); err == nil {
			return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
		}
		if disk.KindOf(err) == disk.Denied {
			err = g.checkMembers(ctx, id, req.GetSnapshotIds())
		}
	case err == nil:
		if err = g.config.Owner.CheckGroup(group); err == nil {
			err = namesAll(group, req.GetSnapshotIds())
		}
	}
	if err == nil {
		err = g.ecs.DeleteGroup(ctx, id)
	}
	if err != nil {
		return nil, err
	}
	return &csi.DeleteVolumeGroupSnapshotResponse{}, nil
}

// checkMembers checks the members that a request names of a group that no read shows, where the credentials may not ask whether it is there:
// RAM has no condition for the deletion of a group. Denied: one is another's, or the request names none.
func (g *GroupController) checkMembers(ctx context.Context, id disk.GroupID, ids []string) error {
	if len(ids) == 0 {
		return disk.Errorf(disk.Denied, "group_snapshot_id: ECS doesn't show %s, and whether it is gone can't be told: allow ecs:UntagResources for snapshotgroup/*", id)
	}
	for _, member := range ids {
		shot, err := g.ecs.GetSnapshot(ctx, disk.SnapshotID(member))
		switch {
		case disk.KindOf(err) == disk.NotFound:
		case err != nil:
			return err
		default:
			if err := g.config.Owner.CheckSnapshot(shot); err != nil {
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
func (g *GroupController) GetVolumeGroupSnapshot(ctx context.Context, req *csi.GetVolumeGroupSnapshotRequest) (*csi.GetVolumeGroupSnapshotResponse, error) {
	id := disk.GroupID(req.GetGroupSnapshotId())
	if id == "" {
		return nil, disk.Errorf(disk.Invalid, "group_snapshot_id is missing")
	}
	group, err := g.ecs.GetGroup(ctx, id)
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
	return &csi.GetVolumeGroupSnapshotResponse{GroupSnapshot: g.group(group)}, nil
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
