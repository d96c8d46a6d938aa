package volume

import (
	"context"
	"errors"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// ControllerGetVolume says what a disk is and which nodes have it (CSI spec,
// ControllerGetVolume); NotFound if there is none.
func (c *Controller) ControllerGetVolume(ctx context.Context, req *csi.ControllerGetVolumeRequest) (*csi.ControllerGetVolumeResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, disk.Errorf(disk.Invalid, "volume_id is missing")
	}
	d, err := c.get(ctx, disk.ID(req.GetVolumeId()))
	switch {
	case err != nil:
		return nil, err
	case d.System:
		return nil, &disk.Error{Disk: d.ID, Kind: disk.NotFound, Err: errors.New("it is the system disk of an instance, and no volume")}
	}
	return &csi.ControllerGetVolumeResponse{
		Volume: c.volume(d),
		Status: &csi.ControllerGetVolumeResponse_VolumeStatus{PublishedNodeIds: nodes(d)},
	}, nil
}

// volume is what is told of a disk that was not just asked for. Its context
// has the name and the cluster that the disk was made for, if its tags say so.
func (c *Controller) volume(d disk.Disk) *csi.Volume {
	about := kindOfDisk(d)
	for _, tag := range []string{disk.VolumeNameTag, disk.ClusterTag} {
		if d.Tags[tag] != "" {
			about[tag] = d.Tags[tag]
		}
	}
	return &csi.Volume{
		VolumeId:           string(d.ID),
		CapacityBytes:      d.Size.Bytes(),
		VolumeContext:      about,
		ContentSource:      origin(d),
		AccessibleTopology: []*csi.Topology{c.config.topology(d, nil, false)},
	}
}

// origin is what a disk was made from, as far as ECS and its tags say; nil if
// from nothing. The snapshot that a copy was made through is not what it was
// made from.
func origin(d disk.Disk) *csi.VolumeContentSource {
	switch source := d.Tags[disk.CloneTag]; {
	case source != "":
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: source}}}
	case d.SnapshotID != "":
		return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: d.SnapshotID}}}
	}
	return nil
}

// kindOfDisk is the part of a volume's context that says what disk it is.
func kindOfDisk(d disk.Disk) map[string]string {
	about := map[string]string{"type": string(d.Category)}
	if d.PerformanceLevel != "" {
		about["performanceLevel"] = string(d.PerformanceLevel)
	}
	return about
}

// nodes returns the nodes that a disk is published to; one that is about to let
// it go still has it.
func nodes(d disk.Disk) []string {
	var ids []string
	for _, instance := range d.Holders() {
		ids = append(ids, string(instance))
	}
	return ids
}
