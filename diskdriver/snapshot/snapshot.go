// Package snapshot answers the calls of CSI about snapshots and groups of
// snapshots.
package snapshot

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/creation"
	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/params"
	"github.com/topodisk/topodisk/topology"
)

// Config says what snapshots of a cluster have in common.
type Config struct {
	Owner     disk.Owner     // decides which snapshots are deleted, and of which disks they are taken
	Unknown   params.Unknown // what to do with an unknown parameter of a class
	ExtraTags disk.Tags      // of every snapshot, unless its class says otherwise of a key
	// CheckTopology refuses accessibility requirements that can't be read.
	CheckTopology func(*csi.TopologyRequirement) error
}

// Controller answers the calls of the CSI Controller service about snapshots, and those of the GroupController service. ECS takes the
// snapshots of a group at the same moment.
type Controller struct {
	config       Config
	ecs          ECS
	records      *creation.Table // of snapshots, by their purpose and name
	groupRecords *creation.Table // of groups, by their names
}

// NewController returns a Controller of one account that remembers nothing.
func NewController(config Config, ecs ECS) *Controller {
	return &Controller{config: config, ecs: ecs, records: creation.NewTable(), groupRecords: creation.NewTable()}
}

// CreateSnapshot makes the snapshot of a name, or answers with the one that was
// made before, as soon as its point in time has passed (CSI spec,
// CreateSnapshot). Whether a volume can be made from it already is told by
// ready_to_use; the same call later tells again.
func (c *Controller) CreateSnapshot(ctx context.Context, req *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	if err := disk.CheckName(req.GetName()); err != nil {
		return nil, err
	}
	if req.GetSourceVolumeId() == "" {
		return nil, disk.Errorf(disk.Invalid, "source_volume_id is missing")
	}
	class, err := params.ParseSnapshotClass(req.GetParameters(), c.config.Unknown)
	if err != nil {
		return nil, err
	}
	warnOf(class.Warnings, "snapshot", req.GetName())
	if err := disk.CheckRoom("snapshotTags", class.Tags, c.config.ExtraTags); err != nil {
		return nil, err
	}
	if err := c.config.CheckTopology(req.GetAccessibilityRequirements()); err != nil {
		return nil, err
	}
	shot, err := c.Take(ctx, forCSI, class.Snapshot(req.GetName(), c.config.Owner.Cluster, disk.ID(req.GetSourceVolumeId())))
	if err != nil {
		return nil, err
	}
	return &csi.CreateSnapshotResponse{Snapshot: c.config.snapshot(shot)}, nil
}

// warnOf logs what a class says in vain.
func warnOf(warnings []string, what, name string) {
	for _, warning := range warnings {
		klog.InfoS("A parameter does nothing", what, name, "warning", warning)
	}
}

// snapshot is what is told of a snapshot. It can be used in all of its region,
// and nowhere else.
func (c Config) snapshot(s disk.Snapshot) *csi.Snapshot {
	return &csi.Snapshot{
		SizeBytes:          s.Size.Bytes(),
		SnapshotId:         string(s.ID),
		SourceVolumeId:     string(s.Source),
		CreationTime:       timestamppb.New(s.Created),
		ReadyToUse:         s.Usable,
		GroupSnapshotId:    string(s.Group),
		AccessibleTopology: []*csi.Topology{{Segments: map[string]string{topology.RegionKey: c.Owner.Region}}},
	}
}

// DeleteSnapshot deletes a snapshot; one that doesn't exist is deleted (CSI
// spec, DeleteSnapshot). Disks that were made from it stay as they are. A member
// of a group goes with its group only.
func (c *Controller) DeleteSnapshot(ctx context.Context, req *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	id := disk.SnapshotID(req.GetSnapshotId())
	if id == "" {
		return nil, disk.Errorf(disk.Invalid, "snapshot_id is missing")
	}
	shot, err := c.ecs.GetSnapshot(ctx, id)
	switch {
	case disk.KindOf(err) == disk.NotFound: // which proves nothing: a snapshot that is there may be another cluster's, or part of a group
		if err = c.ecs.AskSnapshotGone(ctx, id); err == nil {
			return &csi.DeleteSnapshotResponse{}, nil
		}
		if disk.KindOf(err) == disk.Denied { // by a policy, which deploy/ram-policy.json has for deletions, too
			err = nil
		}
	case err != nil:
	case shot.Group != "":
		err = disk.Errorf(disk.Invalid, "snapshot_id: %s is part of the group snapshot %s and goes with it only", id, shot.Group)
	default:
		err = c.config.Owner.CheckSnapshot(shot)
	}
	if err == nil {
		err = c.ecs.DeleteSnapshot(ctx, id)
	}
	if err != nil {
		return nil, err
	}
	return &csi.DeleteSnapshotResponse{}, nil
}

// GetSnapshot says what a snapshot is (CSI spec, GetSnapshot); NotFound if there
// is none, Pending before its point in time.
func (c *Controller) GetSnapshot(ctx context.Context, req *csi.GetSnapshotRequest) (*csi.GetSnapshotResponse, error) {
	if req.GetSnapshotId() == "" {
		return nil, disk.Errorf(disk.Invalid, "snapshot_id is missing")
	}
	shot, err := c.Get(ctx, disk.SnapshotID(req.GetSnapshotId()))
	switch {
	case err != nil:
		return nil, err
	case shot.State == disk.Failed:
		return nil, hasFailed(shot)
	case !shot.Taken():
		return nil, disk.Errorf(disk.Pending, "snapshot %s: %s", shot.ID, shot.Phase())
	}
	return &csi.GetSnapshotResponse{Snapshot: c.config.snapshot(shot)}, nil
}

// Get reads a snapshot. NotFound: no read shows it, and ECS says that it is gone, or the credentials may not ask.
func (c *Controller) Get(ctx context.Context, id disk.SnapshotID) (disk.Snapshot, error) {
	shot, err := c.ecs.GetSnapshot(ctx, id)
	return shot, confirmMissing(err, func() error { return c.ecs.AskSnapshotGone(ctx, id) })
}

// confirmMissing returns the error of a read: NotFound, which no read proves, only if ask, which asks ECS whether it is gone, says nothing else.
func confirmMissing(err error, ask func() error) error {
	if disk.KindOf(err) != disk.NotFound {
		return err
	}
	if asked := ask(); asked != nil && disk.KindOf(asked) != disk.Denied {
		return asked
	}
	return err
}

// hasFailed is the error of a snapshot that somebody may know by its ID.
func hasFailed(shot disk.Snapshot) error {
	return disk.Errorf(disk.Unexpected, "snapshot %s has failed, and nothing can be made from it; delete it", shot.ID)
}
