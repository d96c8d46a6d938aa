package ecssim

import (
	"time"

	"github.com/topodisk/topodisk/ecssim/faults"
	"github.com/topodisk/topodisk/ecssim/state"
)

// AddInstance adds an instance, as if it had just started.
func (s *Server) AddInstance(i Instance) (err error) {
	s.look(func(now time.Time) { err = s.region.AddInstance(i, now) })
	return err
}

// SetInstance changes an instance. Disks stay attached to one that stops; a
// guest that runs again has the devices in their present size.
func (s *Server) SetInstance(id string, change state.InstanceChange) (err error) {
	s.look(func(now time.Time) { err = s.region.SetInstance(id, change, now) })
	return err
}

// RemoveInstance releases an instance, as when a node is gone for good: its
// disks are Available at once, but for those that are deleted with it.
func (s *Server) RemoveInstance(id string) (err error) {
	s.look(func(now time.Time) { err = s.region.RemoveInstance(id, now) })
	return err
}

// Instances returns the instances that exist, in the order of the Config, then
// of AddInstance.
func (s *Server) Instances() []state.InstanceState {
	return seen(s, func(time.Time) []state.InstanceState { return s.region.InstanceStates() })
}

// AddInstanceType declares a type that instances can then have. A type that
// is known gets other figures, for instances that are added from then on.
func (s *Server) AddInstanceType(t state.InstanceType) (err error) {
	s.look(func(time.Time) { err = s.region.AddInstanceType(t) })
	return err
}

// Devices returns the data disks that the guest of an instance sees, which
// lags behind DescribeDisks by Latency.DeviceVisible. A guest that does not
// run sees none.
func (s *Server) Devices(instance string) (devices []state.Device, err error) {
	s.look(func(now time.Time) { devices, err = s.region.Devices(instance, now) })
	return devices, err
}

// strikeInstance does what the fault of a call does to its instance.
func (s *Server) strikeInstance(x *exchange) {
	i := s.region.Instance(x.Params["InstanceId"])
	switch {
	case i == nil:
	case x.fault.Do == faults.Stops:
		s.region.Stop(i, x.at)
	case x.fault.Do == faults.Vanishes:
		s.region.Release(i, x.at, x.cause())
	}
}
