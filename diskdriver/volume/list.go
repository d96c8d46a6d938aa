package volume

import (
	"context"
	"sync"
	"time"

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
	disks, _, err := c.readAll(ctx, last != "")
	if err != nil {
		return nil, err
	}
	disks, next := listing.Page(disks, disk.ID(last), int(req.GetMaxEntries()), func(d disk.Disk) disk.ID { return d.ID })
	response := &csi.ListVolumesResponse{NextToken: next}
	for _, d := range disks {
		response.Entries = append(response.Entries, &csi.ListVolumesResponse_Entry{
			Volume: c.volume(d),
			Status: &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: nodes(d)},
		})
	}
	return response, nil
}

// keptFor is for how long the pages of a list may come from one read of all disks.
const keptFor = time.Minute

// allDisks are what the last read of all disks of the region showed.
type allDisks struct {
	mu    sync.Mutex
	known []disk.Disk
	at    time.Time
}

// readAll returns all disks, and when they were so: for the first page as they are, for a later one perhaps as the last read showed them,
// so that a list of many pages doesn't cost one for every page.
func (c *Controller) readAll(ctx context.Context, continued bool) ([]disk.Disk, time.Time, error) {
	c.all.mu.Lock()
	known, at := c.all.known, c.all.at
	c.all.mu.Unlock()
	if continued && time.Since(at) < keptFor {
		return known, at, nil
	}
	at = time.Now()
	all, err := c.ecs.List(ctx)
	if err != nil {
		return nil, at, err
	}
	c.states.sawAll(all, at)
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.all.known, c.all.at = all, at
	return all, at, nil
}
