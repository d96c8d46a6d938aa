package volume

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/listing"
)

// ListVolumes lists every data disk of the region, whoever made it, and the
// nodes that each is published to: a CO looks for any volume here. The volume
// context says whose a disk is. The list is in the order of the IDs, and its
// tokens name the last one listed, so a volume that is there throughout is
// listed once, whatever comes and goes between two pages (CSI spec, ListVolumes).
func (c *Controller) ListVolumes(ctx context.Context, req *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	last, err := listing.Start(req.GetMaxEntries(), req.GetStartingToken())
	if err != nil {
		return nil, err
	}
	disks, _, err := c.all.Read(ctx, last != "")
	if err != nil {
		return nil, err
	}
	disks, more := listing.Page(disks, disk.ID(last), int(req.GetMaxEntries()), func(d disk.Disk) disk.ID { return d.ID })
	response := &csi.ListVolumesResponse{}
	for _, d := range disks {
		response.Entries = append(response.Entries, &csi.ListVolumesResponse_Entry{
			Volume: c.volume(d),
			Status: &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: nodes(d)},
		})
	}
	if more {
		response.NextToken = listing.Token(string(disks[len(disks)-1].ID))
	}
	return response, nil
}
