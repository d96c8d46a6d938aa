package ecssim

import (
	"slices"
	"time"

	"github.com/topodisk/topodisk/ecssim/faults"
	"github.com/topodisk/topodisk/ecssim/state"
)

// State is all there is to see at one moment.
type State struct {
	Now           time.Time                 `json:"now"`
	Region        string                    `json:"region"`
	Zones         []string                  `json:"zones"`
	Instances     []state.InstanceState     `json:"instances"`
	Disks         []state.DiskState         `json:"disks"`       // data disks
	SystemDisks   []state.DiskState         `json:"systemDisks"` // of the instances
	Snapshots     []state.SnapshotState     `json:"snapshots"`
	Tasks         []state.TaskState         `json:"tasks"`     // the last 1000, and those that are Processing
	DisksMade     int                       `json:"disksMade"` // data disks, since the start
	DisksDeleted  int                       `json:"disksDeleted"`
	Queues        Queues                    `json:"queues"`
	Latency       faults.LatencyForm        `json:"latency"`
	Doubts        Doubts                    `json:"doubts"`
	Stuck         int                       `json:"stuck"` // transitions that FaultStuck keeps back
	Stock         []state.StockLevel        `json:"stock"`
	Throttle      faults.ThrottleState      `json:"throttle"`
	Quotas        Quotas                    `json:"quotas"`
	Denials       []faults.Denial           `json:"denials"`
	Faults        []faults.Fault            `json:"faults"`
	Calls         map[string]map[string]int `json:"calls"`         // counts by action and code, "" for success
	UnknownParams map[string]int            `json:"unknownParams"` // counts by action and name, numbers replaced by N
	Broken        string                    `json:"broken"`        // what Check finds wrong, empty for nothing
}

// State returns all there is to see.
func (s *Server) State() State {
	var st State
	s.look(func(now time.Time) {
		r := s.region
		made, deleted := r.DisksMade()
		st = State{
			Now: now, Region: s.config.Region, Zones: slices.Clone(s.config.Zones),
			Instances: r.InstanceStates(), Disks: r.DiskStates(false), SystemDisks: r.DiskStates(true),
			Snapshots: r.SnapshotStates(now), Tasks: r.TaskStates(),
			Queues: s.config.Queues, Latency: s.timing.Form(), Doubts: s.config.Doubts, Stuck: r.StuckChanges(),
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
