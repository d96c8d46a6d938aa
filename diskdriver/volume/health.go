package volume

import (
	"context"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/listing"
)

// ControllerGetVolumeHealth says what is wrong with a disk by what ECS shows;
// nothing if the list is empty (CSI spec, ControllerGetVolumeHealth). NotFound if
// there is none.
func (c *Controller) ControllerGetVolumeHealth(ctx context.Context, req *csi.ControllerGetVolumeHealthRequest) (*csi.ControllerGetVolumeHealthResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, disk.Errorf(disk.Invalid, "volume_id is missing")
	}
	at := time.Now()
	d, err := c.ecs.Get(ctx, disk.ID(req.GetVolumeId()))
	if err != nil {
		return nil, err
	}
	c.states.saw(d, at)
	return &csi.ControllerGetVolumeHealthResponse{VolumeHealth: healthOf(d, c.states.lasting(d, at), c.stockOfZones(ctx))}, nil
}

// ControllerListVolumeHealth lists the disks of the region with which something
// is wrong, whoever made them, in pages like those of ListVolumes (CSI spec,
// ControllerListVolumeHealth).
func (c *Controller) ControllerListVolumeHealth(ctx context.Context,
	req *csi.ControllerListVolumeHealthRequest) (*csi.ControllerListVolumeHealthResponse, error) {
	last, err := listing.Start(req.GetMaxEntries(), req.GetStartingToken())
	if err != nil {
		return nil, err
	}
	disks, at, err := c.readAll(ctx, last != "")
	if err != nil {
		return nil, err
	}
	zones := c.stockOfZones(ctx)
	var ill []*csi.VolumeHealth
	for _, d := range disks {
		if h := healthOf(d, c.states.lasting(d, at), zones); len(h.GetHealthStatuses()) > 0 {
			ill = append(ill, h)
		}
	}
	ill, more := listing.Page(ill, last, int(req.GetMaxEntries()), (*csi.VolumeHealth).GetVolumeId)
	response := &csi.ControllerListVolumeHealthResponse{Entries: ill}
	if more {
		response.NextToken = listing.Token(ill[len(ill)-1].GetVolumeId())
	}
	return response, nil
}

// healthOf is what is told of a disk's health.
func healthOf(d disk.Disk, lasting time.Duration, zones disk.Offers) *csi.VolumeHealth {
	h := &csi.VolumeHealth{VolumeId: string(d.ID)}
	for _, a := range conditions(d, lasting, zones) {
		h.HealthStatuses = append(h.HealthStatuses, &csi.VolumeHealth_VolumeHealthEntry{Status: a.status, Reason: a.reason, Message: a.message})
	}
	return h
}

// stockOfZones returns what the zones have to give. That it can't be told is no trouble
// of a disk: nil then.
func (c *Controller) stockOfZones(ctx context.Context) disk.Offers {
	zones, err := c.zoneOffers(ctx)
	if err != nil {
		klog.V(2).ErrorS(err, "The health of disks is told without that of their zones")
		return nil
	}
	return zones
}
