package provisionertest

import (
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/topodisk/topodisk/topology"
)

// Topology gives one answer, and records every question.
type Topology struct {
	Requirement *csi.TopologyRequirement
	Err         error
	Deserted    bool // no node is there

	mu    sync.Mutex
	Asked []topology.Question
}

// InZone returns a Topology that requires a zone.
func InZone(zone string) *Topology {
	term := []*csi.Topology{{Segments: map[string]string{topology.WellKnownZoneKey: zone}}}
	return &Topology{Requirement: &csi.TopologyRequirement{Requisite: term, Preferred: term}}
}

// Carried says whether nodes are there.
func (z *Topology) Carried(*csi.Topology) bool { return !z.Deserted }

// Require gives the answer.
func (z *Topology) Require(q topology.Question) (*csi.TopologyRequirement, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.Asked = append(z.Asked, q)
	return z.Requirement, z.Err
}
