package admin

import "github.com/topodisk/topodisk/ecssim"

// instanceRoutes change instances and what is attached to them.
//
//	instances: id, and to change one status or locked, or to add one zone and
//	           type; with DELETE id alone
//	types:     an instance type, as in InstanceType, that instances can then
//	           have
//	queues:    attach, detach, as in Queues; both 0 is one at a time
//	devices:   what the guest of each instance sees
func instanceRoutes() []route {
	return []route{
		change("POST", "instances", setInstance),
		change("DELETE", "instances", removeInstance),
		change("POST", "types", func(s *ecssim.Server, t ecssim.InstanceType) (any, error) { return t, s.AddInstanceType(t) }),
		change("POST", "queues", func(s *ecssim.Server, q ecssim.Queues) (any, error) { return q, s.SetQueues(q) }),
		get("devices", func(s *ecssim.Server) any { return allDevices(s) }),
	}
}

type instanceBody struct {
	ID     string  `json:"id"`
	Zone   string  `json:"zone"`
	Type   string  `json:"type"`
	Status *string `json:"status"`
	Locked *bool   `json:"locked"`
}

// setInstance adds an instance, or changes one that exists.
func setInstance(s *ecssim.Server, want instanceBody) (any, error) {
	if want.Zone != "" || want.Type != "" {
		if err := s.AddInstance(ecssim.Instance{ID: want.ID, Zone: want.Zone, Type: want.Type}); err != nil {
			return nil, err
		}
	}
	if err := s.SetInstance(want.ID, ecssim.InstanceChange{Status: want.Status, Locked: want.Locked}); err != nil {
		return nil, err
	}
	return s.Instances(), nil
}

type instanceName struct {
	ID string `json:"id"`
}

func removeInstance(s *ecssim.Server, want instanceName) (any, error) {
	if err := s.RemoveInstance(want.ID); err != nil {
		return nil, err
	}
	return s.Instances(), nil
}

// allDevices returns what the guests of all instances see.
func allDevices(s *ecssim.Server) map[string][]ecssim.Device {
	all := map[string][]ecssim.Device{}
	for _, i := range s.Instances() {
		devices, err := s.Devices(i.ID)
		if err == nil { // it may have been released just now
			all[i.ID] = devices
		}
	}
	return all
}
