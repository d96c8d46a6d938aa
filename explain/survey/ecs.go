// Package survey reads all that an audit or a list of volumes needs: the storage objects of a cluster, with only get and list, and what
// ECS has in a region. What the user may not read is named, with what therefore can't be told.
package survey

import (
	"context"
	"fmt"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/internal/audit"
	"github.com/topodisk/topodisk/internal/shell"
)

// ECS lists what there is in a region, page by page.
type ECS interface {
	// List returns every data disk, each once.
	List(ctx context.Context) ([]disk.Disk, error)
	// ListSnapshots returns every snapshot that passes the filter, each once.
	ListSnapshots(ctx context.Context, filter disk.SnapshotFilter) ([]disk.Snapshot, error)
}

// ofSnapshots are the findings about snapshots, and ofECS all that can't be told without ECS.
var (
	ofSnapshots = []audit.Kind{audit.SnapshotWithoutContent, audit.LeftoverCopy, audit.Archive}
	ofECS       = append([]audit.Kind{audit.DiskWithoutVolume, audit.VolumeWithoutDisk, audit.UnwantedAttachment, audit.WithoutOwner}, ofSnapshots...)
)

// WithoutECS is the listing of somebody who can't read ECS, for a reason.
func WithoutECS(reason string) audit.Listing {
	return audit.Listing{Unread: []audit.Unread{{What: "ECS", Reason: reason, Kinds: ofECS}}}
}

// Listing reads ECS. Keys that may not list disks or snapshots leave that unread; another error is returned.
func Listing(ctx context.Context, ecs ECS) (audit.Listing, error) {
	disks, err := ecs.List(ctx)
	switch {
	case refused(err):
		return WithoutECS(err.Error()), nil
	case err != nil:
		return audit.Listing{}, fmt.Errorf("listing the disks of ECS: %w", err)
	}
	l := audit.Listing{}
	for _, d := range disks {
		l.Disks = append(l.Disks, diskOf(d))
	}
	// ECS finds at most 1 000 things by a tag, so all are read.
	snapshots, err := ecs.ListSnapshots(ctx, disk.SnapshotFilter{})
	switch {
	case refused(err):
		l.Unread = []audit.Unread{{What: "snapshots of ECS", Reason: err.Error(), Kinds: ofSnapshots}}
		return l, nil
	case err != nil:
		return audit.Listing{}, fmt.Errorf("listing the snapshots of ECS: %w", err)
	}
	for _, s := range snapshots {
		l.Snapshots = append(l.Snapshots, snapshotOf(s))
	}
	return l, nil
}

// refused says whether ECS doesn't take the keys, or doesn't let them read.
func refused(err error) bool {
	if err == nil {
		return false
	}
	kind := disk.KindOf(err)
	return kind == disk.Denied || kind == disk.Unauthenticated
}

// TagCommands returns what returns the commands that make disks and snapshots of a region a cluster's; nil if the region is not known.
func TagCommands(region string) func(resource, cluster string, ids []string) []shell.Command {
	if region == "" {
		return nil
	}
	return func(resource, cluster string, ids []string) []shell.Command {
		return disk.TagCommands(region, resource, cluster, ids...)
	}
}

func diskOf(d disk.Disk) audit.Disk {
	of := audit.Disk{
		ID: string(d.ID), Cluster: d.Tags[disk.ClusterTag], Owner: d.Tags[disk.OwnerTag],
		Name: d.Tags[disk.VolumeNameTag], Type: string(d.Category), Level: string(d.PerformanceLevel),
		Zone: string(d.Zone), GiB: int64(d.Size), Created: d.Created, Creating: d.State == disk.Creating, Detached: d.Released,
	}
	for _, a := range d.Attachments {
		of.Instances = append(of.Instances, string(a.Instance))
	}
	return of
}

func snapshotOf(s disk.Snapshot) audit.Snapshot {
	of := audit.Snapshot{
		ID: string(s.ID), Cluster: s.Tags[disk.ClusterTag], Owner: s.Tags[disk.OwnerTag],
		Name: s.Tags[disk.SnapshotNameTag], Disk: string(s.Source), Group: string(s.Group),
		Archive: s.Tags[disk.ArchiveOfTag] != "", GiB: int64(s.Size), Created: s.Created,
	}
	if of.Name == "" {
		of.Name = s.Tags[disk.GroupNameTag]
	}
	if s.Tags[disk.TemporaryTag] == disk.TemporaryForClone {
		of.Copy = s.Tags[disk.VolumeNameTag]
	}
	return of
}
