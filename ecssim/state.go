package ecssim

import (
	"slices"
	"time"

	"github.com/topodisk/topodisk/ecssim/faults"
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
	Latency       faults.LatencyForm        `json:"latency"`
	Doubts        Doubts                    `json:"doubts"`
	Stuck         int                       `json:"stuck"` // transitions that FaultStuck keeps back
	Stock         []StockLevel              `json:"stock"`
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
		st = State{
			Now: now, Region: s.config.Region, Zones: slices.Clone(s.config.Zones),
			Instances: s.instanceStates(), Disks: s.diskStates(false), SystemDisks: s.diskStates(true),
			Snapshots: s.snapshotStates(now), Tasks: s.taskStates(),
			Queues: s.config.Queues, Latency: s.timing.Form(), Doubts: s.config.Doubts, Stuck: len(s.stuck),
			DisksMade: s.disks.made, DisksDeleted: s.disks.deleted,
			Stock: s.levels(), Throttle: s.limits.State(now), Quotas: s.config.Quotas, Denials: s.permissions.Denials(), Faults: s.faults.All(),
			Calls: s.ledger.copyCounts(), UnknownParams: s.ledger.copyUnknown(),
		}
		if err := s.broken(); err != nil {
			st.Broken = err.Error()
		}
	})
	return st
}
