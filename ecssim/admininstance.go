package ecssim

// adminInstance adds an instance, or changes one that exists.
func (s *Server) adminInstance(body []byte) (any, error) {
	var want struct {
		ID     string  `json:"id"`
		Zone   string  `json:"zone"`
		Type   string  `json:"type"`
		Status *string `json:"status"`
		Locked *bool   `json:"locked"`
	}
	if err := decodeStrict(body, &want); err != nil {
		return nil, err
	}
	if want.Zone != "" || want.Type != "" {
		if err := s.AddInstance(Instance{ID: want.ID, Zone: want.Zone, Type: want.Type}); err != nil {
			return nil, err
		}
	}
	if err := s.SetInstance(want.ID, InstanceChange{Status: want.Status, Locked: want.Locked}); err != nil {
		return nil, err
	}
	return s.State().Instances, nil
}

func (s *Server) adminRemoveInstance(body []byte) (any, error) {
	var want struct {
		ID string `json:"id"`
	}
	if err := decodeStrict(body, &want); err != nil {
		return nil, err
	}
	if err := s.RemoveInstance(want.ID); err != nil {
		return nil, err
	}
	return s.State().Instances, nil
}

func (s *Server) adminQueues(body []byte) (any, error) {
	var want Queues
	if err := decodeStrict(body, &want); err != nil {
		return nil, err
	}
	return want, s.SetQueues(want)
}

func (s *Server) adminLatency(body []byte) (any, error) {
	var want LatencyForm
	if err := decodeStrict(body, &want); err != nil {
		return nil, err
	}
	s.mu.Lock()
	now := s.config.Latency
	s.mu.Unlock()
	l, err := want.read(now)
	if err != nil {
		return nil, err
	}
	return l.form(), s.SetLatency(l)
}

func (s *Server) adminDoubts(body []byte) (any, error) {
	var want Doubts
	if err := decodeStrict(body, &want); err != nil {
		return nil, err
	}
	return want, s.SetDoubts(want)
}

func (s *Server) adminUnstick(body []byte) (any, error) {
	var want struct {
		Disk string `json:"disk"`
	}
	if err := decodeStrict(body, &want); err != nil {
		return nil, err
	}
	return map[string]int{"unstuck": s.Unstick(want.Disk)}, nil
}

// allDevices returns what the guests of all instances see.
func (s *Server) allDevices() map[string][]Device {
	all := map[string][]Device{}
	for _, i := range s.State().Instances {
		devices, err := s.Devices(i.ID)
		if err == nil { // it may have been released just now
			all[i.ID] = devices
		}
	}
	return all
}
