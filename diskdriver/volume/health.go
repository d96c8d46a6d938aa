package volume

import (
	"context"
	"fmt"
	"slices"
	"sync"
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
	d, err := c.get(ctx, disk.ID(req.GetVolumeId()))
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
	ill, next := listing.Page(ill, last, int(req.GetMaxEntries()), (*csi.VolumeHealth).GetVolumeId)
	return &csi.ControllerListVolumeHealthResponse{Entries: ill, NextToken: next}, nil
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

// condition is one thing that is wrong with a disk (CSI spec, VolumeHealthEntry).
type condition struct {
	status  csi.VolumeHealthErrorType
	reason  string // CamelCase, for machines; each cause has its own
	message string // for people
}

const (
	degraded     = csi.VolumeHealthErrorType_DEGRADED
	inaccessible = csi.VolumeHealthErrorType_INACCESSIBLE
)

// conditions says what is wrong with a disk by what ECS shows of it, of how long it
// has been seen in its state, and of what the zones have to give; nil if that
// isn't known. Each reason comes once.
func conditions(d disk.Disk, lasting time.Duration, zones disk.Offers) []condition {
	return slices.Concat(locksOf(d), delayOf(d, lasting), troubleOf(d, zones))
}

// locks are the reasons for which ECS locks a disk (DescribeDisks,
// OperationLocks). Of a disk that is on no instance a security lock says nothing.
var locks = map[string]condition{
	"financial":              {inaccessible, "LockedForPayment", "ECS has locked the disk for a payment that is due; no node can attach it before the account has paid"},
	"dedicatedhostfinancial": {inaccessible, "LockedForHostPayment", "ECS has locked the disk for a payment that is due for the dedicated host of its instance"},
	"security":               {inaccessible, "LockedForSecurity", "ECS has locked the disk for security reasons, as it says in the console's security events of the instance"},
	"recycling":              {inaccessible, "LockedForRelease", "ECS has locked the disk because it is about to release its instance"},
}

// locksOf tells of the locks on a disk.
func locksOf(d disk.Disk) []condition {
	var all []condition
	for _, lock := range slices.Compact(slices.Sorted(slices.Values(d.Locks))) {
		a, known := locks[lock]
		switch {
		case lock == "security" && d.State != disk.Attached:
			continue
		case !known:
			a = condition{inaccessible, "LockedByECS", fmt.Sprintf("ECS has locked the disk, and gives %q for the reason", lock)}
		}
		if !slices.ContainsFunc(all, func(other condition) bool { return other.reason == a.reason }) {
			all = append(all, a)
		}
	}
	return all
}

// passing are the states that end by themselves, and when that takes too long.
// ECS gives no limits; each is several times what it takes as a rule.
var passing = map[disk.State]struct {
	limit  time.Duration
	status csi.VolumeHealthErrorType
	reason string
}{
	disk.Creating:  {10 * time.Minute, inaccessible, "CreatingTooLong"},
	disk.Attaching: {5 * time.Minute, inaccessible, "AttachingTooLong"},
	disk.Detaching: {5 * time.Minute, inaccessible, "DetachingTooLong"},
	disk.Modifying: {3 * time.Hour, degraded, "ModifyingTooLong"}, // a large disk takes more than half an hour
	disk.ReIniting: {0, inaccessible, "Reinitializing"},           // its data are being replaced
}

// delayOf tells of a state that doesn't end.
func delayOf(d disk.Disk, lasting time.Duration) []condition {
	slow, ok := passing[d.State]
	if !ok || lasting < slow.limit {
		return nil
	}
	text := fmt.Sprintf("ECS shows the disk %s", d.State)
	if slow.limit > 0 {
		text = fmt.Sprintf("ECS has been showing the disk %s for %s", d.State, lasting.Round(time.Second))
	}
	if holders := d.Holders(); len(holders) > 0 {
		text += ", with " + disk.List(holders)
	}
	return []condition{{slow.status, slow.reason, text}}
}

// troubleOf tells of a zone that has nothing to give any more: the disk works,
// but it can't be moved to another type, nor have a new disk or a copy beside it.
func troubleOf(d disk.Disk, zones disk.Offers) []condition {
	offered, listed := zones[d.Zone]
	switch {
	case d.Zone == "" || len(zones) == 0:
		return nil
	case !listed:
		return []condition{{degraded, "ZoneNotListed", fmt.Sprintf("ECS lists the region's zones without the disk's, %s", d.Zone)}}
	case len(offered) == 0:
		return []condition{{degraded, "ZoneWithoutStock", fmt.Sprintf("ECS has no disk of any type to give in the disk's zone, %s", d.Zone)}}
	}
	return nil
}

// states remembers since when disks are seen in a state that should end by itself.
// ECS doesn't say; after a restart the time counts from the first look.
type states struct {
	mu   sync.Mutex
	seen map[disk.ID]stateSince
}

// stateSince is a state, and when a disk was first seen in it.
type stateSince struct {
	state disk.State
	since time.Time
}

// saw takes down what a read showed of a disk.
func (s *states) saw(d disk.Disk, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	note(s.seen, s.seen, d, at)
}

// sawAll takes down what a read showed of all disks that there are.
func (s *states) sawAll(disks []disk.Disk, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := make(map[disk.ID]stateSince)
	for _, d := range disks {
		note(now, s.seen, d, at)
	}
	s.seen = now
}

// note adds a disk to those seen in a state that should end.
func note(now, before map[disk.ID]stateSince, d disk.Disk, at time.Time) {
	last, known := before[d.ID]
	switch _, ends := passing[d.State]; {
	case !ends:
		delete(now, d.ID)
	case known && last.state == d.State:
		now[d.ID] = last
	default:
		now[d.ID] = stateSince{d.State, at}
	}
}

// lasting returns for how long a disk had been seen in its state at a time; 0 if
// it was seen in another since.
func (s *states) lasting(d disk.Disk, at time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := s.seen[d.ID]; last.state == d.State {
		return max(0, at.Sub(last.since))
	}
	return 0
}
