package ecssim

import (
	"context"
	"slices"
	"time"

	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/faults"
	"github.com/topodisk/topodisk/ecssim/state"
)

// AddInstance adds an instance, as if it had just started.
func (s *Server) AddInstance(i Instance) (err error) {
	s.look(func(now time.Time) { err = s.service.Region.AddInstance(i, now) })
	return err
}

// SetInstance changes an instance. Disks stay attached to one that stops; a
// guest that runs again has the devices in their present size.
func (s *Server) SetInstance(id string, change InstanceChange) (err error) {
	s.look(func(now time.Time) { err = s.service.Region.SetInstance(id, change, now) })
	return err
}

// RemoveInstance releases an instance, as when a node is gone for good: its
// disks are Available at once, but for those that are deleted with it.
func (s *Server) RemoveInstance(id string) (err error) {
	s.look(func(now time.Time) { err = s.service.Region.RemoveInstance(id, now) })
	return err
}

// Instances returns the instances that exist, in the order of the Config, then
// of AddInstance.
func (s *Server) Instances() []InstanceState {
	return seen(s, func(time.Time) []InstanceState { return s.service.Region.InstanceStates() })
}

// AddInstanceType declares a type that instances can then have. A type that
// is known gets other figures, for instances that are added from then on.
func (s *Server) AddInstanceType(t InstanceType) (err error) {
	s.look(func(time.Time) { err = s.service.Region.AddInstanceType(t) })
	return err
}

// Devices returns the data disks that the guest of an instance sees, which
// lags behind DescribeDisks by Latency.DeviceVisible. A guest that does not
// run sees none.
func (s *Server) Devices(instance string) (devices []Device, err error) {
	s.look(func(now time.Time) { devices, err = s.service.Region.Devices(instance, now) })
	return devices, err
}

// hitInstance does what the fault of a call does to its instance.
func (s *Server) hitInstance(x *exchange) {
	i := s.service.Region.Instance(x.Params["InstanceId"])
	switch {
	case i == nil:
	case x.Fault.Do == faults.Stops:
		s.service.Region.Stop(i, x.At)
	case x.Fault.Do == faults.Vanishes:
		s.service.Region.Release(i, x.At, x.Cause())
	}
}

// Disks returns the data disks that exist, in the order of their creation.
func (s *Server) Disks() []DiskState {
	return seen(s, func(time.Time) []DiskState { return s.service.Region.DiskStates(false) })
}

// LockDisk locks a disk for some reasons, of LockReasons; none unlocks it. A disk
// that is locked for a payment is refused by AttachDisk with DiskInArrears.
func (s *Server) LockDisk(id string, reasons ...string) (err error) {
	s.look(func(time.Time) { err = s.service.Region.LockDisk(id, reasons) })
	return err
}

// Snapshots returns the snapshots that exist, in the order of their creation.
func (s *Server) Snapshots() []SnapshotState { return seen(s, s.service.Region.SnapshotStates) }

// AddAutoSnapshot makes a snapshot of a disk as ECS does by itself where an
// automatic snapshot policy says so, and returns its ID. It is done at once.
func (s *Server) AddAutoSnapshot(diskID string) (id string, err error) {
	s.look(func(now time.Time) { id, err = s.service.Region.AddAutoSnapshot(diskID, now) })
	return id, err
}

// Unstick lets the transitions of a disk come now that FaultStuck has kept
// back, and returns how many those are. An ID of "" stands for all disks.
func (s *Server) Unstick(disk string) int {
	return seen(s, func(now time.Time) int { return s.service.Region.Unstick(disk, now) })
}

// Check returns what is wrong with the state, joined, or nil: what must hold
// in any ECS, and what a driver's test must not have broken. Two disks under
// one ClientToken, a disk where none can be, a disk attached twice, a state
// that nothing led to, a count that does not add up.
func (s *Server) Check() error {
	return seen(s, func(time.Time) error { return s.service.Region.Check() })
}

// AwaitChange waits until there were more changes than those known, and returns
// how many there were: disks, devices and whatever else has come, changed or
// gone, by a call or at its own time. It does nothing while nothing changes. The
// error is that of ctx.
func (s *Server) AwaitChange(ctx context.Context, known int) (int, error) {
	for {
		w := seen(s, func(time.Time) state.Wait { return s.service.Region.NextChange() })
		if w.Changes > known {
			return w.Changes, nil
		}
		if err := w.End(ctx, s.clock); err != nil {
			return known, err
		}
	}
}

// SetStock says how many more disks of a category a zone sells: 0 is sold
// out, less than 0 is no limit. Zone "" stands for the regional categories. A
// category that was not on offer there is from now on. Deleting a disk gives
// nothing back.
func (s *Server) SetStock(zone, category string, units int) error {
	return s.SetStockLevel(StockLevel{Zone: zone, Category: category, Units: units})
}

// SellOut is SetStock with no units, and the code, one of SoldOutCodes, that
// CreateDisk then answers.
func (s *Server) SellOut(zone, category, code string) error {
	if !slices.Contains(state.SoldOutCodes, code) {
		return config.Invalid("code", code, config.OneOf(state.SoldOutCodes))
	}
	return s.SetStockLevel(StockLevel{Zone: zone, Category: category, Code: code})
}

// SetStockLevel is SetStock with the code, one of SoldOutCodes, that CreateDisk
// answers once there are no units; empty is Config.SoldOutCode.
func (s *Server) SetStockLevel(level StockLevel) (err error) {
	s.look(func(time.Time) { err = s.service.Region.SetStock(level) })
	return err
}

// SetZoneStock is SetStockLevel for every category that a zone offers.
func (s *Server) SetZoneStock(zone string, units int, code string) (err error) {
	s.look(func(time.Time) { err = s.service.Region.SetZoneStock(zone, units, code) })
	return err
}

// Stock returns the stock of every category on offer, zone by zone in the
// order of the Config, the regional ones last.
func (s *Server) Stock() []StockLevel {
	return seen(s, func(time.Time) []StockLevel { return s.service.Region.StockLevels() })
}

// Zones returns the IDs of the region's zones.
func (s *Server) Zones() []string { return slices.Clone(s.config.Zones) }
