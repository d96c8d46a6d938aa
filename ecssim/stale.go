package ecssim

import (
	"iter"
	"slices"

	"github.com/topodisk/topodisk/ecssim/faults"
	"github.com/topodisk/topodisk/ecssim/state"
)

// staleReads are the reads that FaultStale lets lag behind, by name.
var staleReads = []string{
	"DescribeDisks", "DescribeInstances", "DescribeSnapshots", "DescribeSnapshotGroups", "DescribeTasks", "ListTagResources", "DescribeTags",
}

// lagBehind sets a read back in time if its fault says so.
func (x *exchange) lagBehind() {
	if x.fault.Do == faults.Stale && slices.Contains(staleReads, x.action.name) {
		x.stale = true
		x.now = x.now.Add(-x.fault.Lag)
	}
}

// view is what a read finds: what there is or, if it is stale, what there was.
func (s *Server) view(x *exchange) state.View {
	if x.stale {
		return s.region.AsOf(x.now)
	}
	return s.region.Present()
}

// shown leaves out what the fault of a read hides.
func shown[T any](x *exchange, list iter.Seq[T], id func(T) string) iter.Seq[T] {
	if x.fault.Do != faults.Hidden {
		return list
	}
	return func(yield func(T) bool) {
		for v := range list {
			if !x.fault.Hides(id(v)) && !yield(v) {
				return
			}
		}
	}
}

func (s *Server) disksFor(x *exchange, ids []string, all bool) iter.Seq[*state.Disk] {
	return shown(x, s.view(x).Disks(ids, all), func(d *state.Disk) string { return d.ID })
}

func (s *Server) shotsFor(x *exchange, ids []string, all bool) iter.Seq[*state.Snapshot] {
	return shown(x, s.view(x).Snapshots(ids, all), func(n *state.Snapshot) string { return n.ID })
}

func (s *Server) groupsFor(x *exchange) iter.Seq[*state.SnapshotGroup] {
	return shown(x, s.view(x).Groups(), func(g *state.SnapshotGroup) string { return g.ID })
}

// instancesFor returns instances in their order, the first made first.
func (s *Server) instancesFor(x *exchange) iter.Seq[*state.Instance] {
	return shown(x, s.view(x).Instances(), func(i *state.Instance) string { return i.ID })
}
