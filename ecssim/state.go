package ecssim

import (
	"slices"
	"time"
)

// State is all there is to see at one moment.
type State struct {
	Now           time.Time                 `json:"now"`
	Region        string                    `json:"region"`
	Zones         []string                  `json:"zones"`
	Instances     []InstanceState           `json:"instances"`
	Disks         []DiskState               `json:"disks"`       // data disks
	SystemDisks   []DiskState               `json:"systemDisks"` // of the instances
	Snapshots     []SnapshotState           `json:"snapshots"`
	Tasks         []TaskState               `json:"tasks"`     // the last 1000, and those that are Processing
	DisksMade     int                       `json:"disksMade"` // data disks, since the start
	DisksDeleted  int                       `json:"disksDeleted"`
	Queues        Queues                    `json:"queues"`
	Latency       LatencyForm               `json:"latency"`
	Doubts        Doubts                    `json:"doubts"`
	Stuck         int                       `json:"stuck"` // transitions that FaultStuck keeps back
	Stock         []StockLevel              `json:"stock"`
	Throttle      ThrottleState             `json:"throttle"`
	Quotas        Quotas                    `json:"quotas"`
	Denials       []Denial                  `json:"denials"`
	Faults        []Fault                   `json:"faults"`
	Calls         map[string]map[string]int `json:"calls"`         // counts by action and code, "" for success
	UnknownParams map[string]int            `json:"unknownParams"` // counts by action and name, numbers replaced by N
	Broken        string                    `json:"broken"`        // what Check finds wrong, empty for nothing
}

// State returns all there is to see.
func (s *Server) State() State {
	var st State
	s.look(func(now time.Time) {
		r := s.service.Region
		made, deleted := r.DisksMade()
		st = State{
			Now: now, Region: s.config.Region, Zones: slices.Clone(s.config.Zones),
			Instances: r.InstanceStates(), Disks: r.DiskStates(false), SystemDisks: r.DiskStates(true),
			Snapshots: r.SnapshotStates(now), Tasks: r.TaskStates(),
			Queues: s.config.Queues, Latency: s.service.Timing.Form(), Doubts: s.config.Doubts, Stuck: r.StuckChanges(),
			DisksMade: made, DisksDeleted: deleted,
			Stock: r.StockLevels(), Throttle: s.limits.State(now), Quotas: s.config.Quotas, Denials: s.permissions.Denials(), Faults: s.faults.All(),
			Calls: s.ledger.copyCounts(), UnknownParams: s.ledger.copyUnknown(),
		}
		if err := r.Check(); err != nil {
			st.Broken = err.Error()
		}
	})
	return st
}
