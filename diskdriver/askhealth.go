package diskdriver

import (
	"context"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// ControllerGetVolumeHealth says what is wrong with a disk by what ECS shows;
// nothing if the list is empty (CSI spec, ControllerGetVolumeHealth). NotFound if
// there is none.
func (c *controller) ControllerGetVolumeHealth(ctx context.Context, req *csi.ControllerGetVolumeHealthRequest) (*csi.ControllerGetVolumeHealthResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, disk.Errorf(disk.Invalid, "volume_id is missing")
	}
	at := time.Now()
	d, err := c.disks.Get(ctx, disk.ID(req.GetVolumeId()))
	if err != nil {
		return nil, err
	}
	c.watch.saw(d, at)
	return &csi.ControllerGetVolumeHealthResponse{VolumeHealth: health(d, c.watch.lasting(d, at), c.supply(ctx))}, nil
}

// ControllerListVolumeHealth lists the disks of the region with which something
// is wrong, whoever made them, in pages like those of ListVolumes (CSI spec,
// ControllerListVolumeHealth).
func (c *controller) ControllerListVolumeHealth(ctx context.Context, req *csi.ControllerListVolumeHealthRequest) (*csi.ControllerListVolumeHealthResponse, error) {
	last, err := lastListed(req.GetMaxEntries(), req.GetStartingToken())
	if err != nil {
		return nil, err
	}
	disks, at, err := c.pass.read(ctx, c.disks, &c.watch, last != "")
	if err != nil {
		return nil, err
	}
	zones := c.supply(ctx)
	var ill []*csi.VolumeHealth
	for _, d := range disks {
		if h := health(d, c.watch.lasting(d, at), zones); len(h.GetHealthStatuses()) > 0 {
			ill = append(ill, h)
		}
	}
	ill, more := page(ill, last, int(req.GetMaxEntries()), (*csi.VolumeHealth).GetVolumeId)
	response := &csi.ControllerListVolumeHealthResponse{Entries: ill}
	if more {
		response.NextToken = tokenPrefix + ill[len(ill)-1].GetVolumeId()
	}
	return response, nil
}

// health is what is told of a disk's health.
func health(d disk.Disk, lasting time.Duration, zones disk.Offers) *csi.VolumeHealth {
	h := &csi.VolumeHealth{VolumeId: string(d.ID)}
	for _, a := range ailments(d, lasting, zones) {
		h.HealthStatuses = append(h.HealthStatuses, &csi.VolumeHealth_VolumeHealthEntry{Status: a.status, Reason: a.reason, Message: a.message})
	}
	return h
}

// supply returns what the zones have to give. That it can't be told is no trouble
// of a disk: nil then.
func (c *controller) supply(ctx context.Context) disk.Offers {
	zones, err := c.offers.of(ctx, c.stock, []disk.Choice{{Category: "cloud_essd"}})
	if err != nil {
		klog.V(2).ErrorS(err, "The health of disks is told without that of their zones")
		return nil
	}
	return zones
}

// watch remembers since when disks are seen in a state that should end by itself.
// ECS doesn't say; after a restart the time counts from the first look.
type watch struct {
	mu   sync.Mutex
	seen map[disk.ID]sight
}

type sight struct {
	state disk.State
	since time.Time
}

// saw takes down what a read showed of a disk.
func (w *watch) saw(d disk.Disk, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen == nil {
		w.seen = make(map[disk.ID]sight)
	}
	note(w.seen, w.seen, d, at)
}

// sawAll takes down what a read showed of all disks that there are.
func (w *watch) sawAll(disks []disk.Disk, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := make(map[disk.ID]sight)
	for _, d := range disks {
		note(now, w.seen, d, at)
	}
	w.seen = now
}

// note adds a disk to those seen in a state that should end.
func note(now, before map[disk.ID]sight, d disk.Disk, at time.Time) {
	last, known := before[d.ID]
	switch _, ends := passing[d.State]; {
	case !ends:
		delete(now, d.ID)
	case known && last.state == d.State:
		now[d.ID] = last
	default:
		now[d.ID] = sight{d.State, at}
	}
}

// lasting returns for how long a disk had been seen in its state at a time; 0 if
// it was seen in another since.
func (w *watch) lasting(d disk.Disk, at time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.seen[d.ID]; s.state == d.State {
		return max(0, at.Sub(s.since))
	}
	return 0
}
