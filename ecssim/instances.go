package ecssim

import (
	"time"

	"github.com/topodisk/topodisk/ecssim/faults"
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

// strikeInstance does what the fault of a call does to its instance.
func (s *Server) strikeInstance(x *exchange) {
	i := s.service.Region.Instance(x.Params["InstanceId"])
	switch {
	case i == nil:
	case x.Fault.Do == faults.Stops:
		s.service.Region.Stop(i, x.At)
	case x.Fault.Do == faults.Vanishes:
		s.service.Region.Release(i, x.At, x.Cause())
	}
}
