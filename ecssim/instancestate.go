package ecssim

import (
	"maps"
	"slices"
	"time"

	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/faults"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// InstanceState is an instance as it is.
type InstanceState struct {
	Instance
	Locked    bool     `json:"locked,omitempty"` // for security
	System    string   `json:"systemDisk"`       // ID of its system disk
	Disks     []string `json:"disks"`            // IDs of the data disks that are attached, or on their way
	Attaching int      `json:"attaching"`
	Detaching int      `json:"detaching"`
	DiskLimit int      `json:"diskLimit"` // of cloud disks, its system disk included
}

// InstanceChange is what SetInstance changes; nil leaves a thing as it is.
type InstanceChange struct {
	Status *string `json:"status"` // one of Pending, Running, Starting, Stopping and Stopped
	Locked *bool   `json:"locked"` // for security: refuses attaches and detaches with InstanceLockedForSecurity
}

// AddInstance adds an instance, as if it had just started.
func (s *Server) AddInstance(i Instance) error {
	s.mu.Lock()
	known := Config{Zones: s.config.Zones, Instances: []Instance{i}, InstanceTypes: slices.Collect(maps.Values(s.fleet.types))}
	s.mu.Unlock()
	if err := known.checkInstances(); err != nil {
		return err
	}
	var err error
	s.look(func(now time.Time) {
		if s.fleet.instances[i.ID] != nil {
			err = config.Invalid("id", i.ID, "an instance ID that does not exist yet")
			return
		}
		s.fleet.add(i, now)
		s.earlier.touch(i.ID)
		s.bootDisk(s.fleet.instances[i.ID], now)
	})
	return err
}

// SetInstance changes an instance. Disks stay attached to one that stops; a
// guest that runs again has the devices in their present size.
func (s *Server) SetInstance(id string, change InstanceChange) error {
	if change.Status != nil && !slices.Contains(instanceStates, *change.Status) {
		return config.Invalid("status", *change.Status, config.OneOf(instanceStates))
	}
	var err error
	s.look(func(now time.Time) {
		i := s.fleet.instances[id]
		if i == nil {
			err = s.noInstance("id", id)
			return
		}
		s.earlier.touch(id)
		if change.Locked != nil {
			i.locked = *change.Locked
		}
		if change.Status != nil {
			i.become(*change.Status, now)
		}
	})
	return err
}

// RemoveInstance releases an instance, as when a node is gone for good: its
// disks are Available at once, but for those that are deleted with it.
func (s *Server) RemoveInstance(id string) error {
	var err error
	s.look(func(now time.Time) {
		i := s.fleet.instances[id]
		if i == nil {
			err = s.noInstance("id", id)
			return
		}
		s.release(i, now, "release of instance "+id)
	})
	return err
}

// become gives the instance another status.
func (i *instance) become(status string, at time.Time) {
	if status == instanceRunning && i.Status != instanceRunning {
		i.started = at
		for _, a := range i.attachments {
			a.guestSize = a.disk.size
		}
	}
	i.Status = status
}

func (s *Server) release(i *instance, at time.Time, cause string) {
	s.earlier.touch(i.ID)
	delete(s.fleet.instances, i.ID)
	for _, a := range slices.Clone(i.attachments) {
		gone := a.disk.deleteWithInstance
		s.removeAttachment(a, at, cause)
		if gone {
			s.dropDisk(a.disk)
			s.ledger.stats.diskGone(a.disk.id)
		}
	}
}

// strikeInstance does what the fault of a call does to its instance.
func (s *Server) strikeInstance(x *exchange) {
	i := s.fleet.instances[x.Params["InstanceId"]]
	switch {
	case i == nil:
	case x.fault.Do == faults.Stops:
		i.become(instanceStopped, x.at)
		s.earlier.touch(i.ID)
	case x.fault.Do == faults.Vanishes:
		s.release(i, x.at, x.cause())
	}
}

// noInstance is the error of an admin request about an unknown instance.
func (s *Server) noInstance(field, id string) error {
	var ids []string
	for _, i := range s.fleet.inOrder() {
		ids = append(ids, i.ID)
	}
	return config.Invalid(field, id, config.OneOf(ids))
}

// findInstance returns an instance that must exist.
func (s *Server) findInstance(id string) (*instance, *wire.Refusal) {
	i := s.fleet.instances[id]
	if i == nil {
		return nil, wire.Refuse(404, "InvalidInstanceId.NotFound", "The specified InstanceId %q does not exist.", id)
	}
	return i, nil
}

// checkState refuses an instance that no disk can be attached to or detached
// from now. ECS's tables give IncorrectInstanceStatus another HTTP status by action.
func (i *instance) checkState(status int) *wire.Refusal {
	switch {
	case i.Status != instanceRunning && i.Status != instanceStopped:
		return wire.Refuse(status, "IncorrectInstanceStatus", "The current status %s of instance %s does not support this operation.", i.Status, i.ID)
	case i.locked:
		return wire.Refuse(403, "InstanceLockedForSecurity", "The instance %s is locked for security.", i.ID)
	}
	return nil
}

func (i *instance) renderLocks() []wire.Object {
	if i.locked {
		return []wire.Object{{"LockReason": "security"}}
	}
	return []wire.Object{}
}

// Instances returns the instances that exist, in the order of the Config, then
// of AddInstance.
func (s *Server) Instances() []InstanceState {
	return seen(s, func(time.Time) []InstanceState { return s.instanceStates() })
}

// instanceStates lists the instances that exist, in their order.
func (s *Server) instanceStates() []InstanceState {
	return wire.Each(s.fleet.inOrder(), (*instance).export)
}

func (i *instance) export() InstanceState {
	st := InstanceState{
		Instance: i.Instance, Locked: i.locked, Disks: []string{}, DiskLimit: i.kind.DiskQuantity,
		Attaching: i.inPhase(diskAttaching), Detaching: i.inPhase(diskDetaching),
	}
	for _, a := range i.attachments {
		if a.disk.system {
			st.System = a.disk.id
		} else {
			st.Disks = append(st.Disks, a.disk.id)
		}
	}
	return st
}
