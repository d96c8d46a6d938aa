package ecssim

import (
	"iter"
	"slices"

	"github.com/topodisk/topodisk/ecssim/faults"
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

// The things that a read finds, as they are or, if it is stale, as they were.

func (s *Server) disksFor(x *exchange, ids []string, all bool) iter.Seq[*disk] {
	return shown(x, s.disksThen(x, ids, all), func(d *disk) string { return d.id })
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

func (s *Server) disksThen(x *exchange, ids []string, all bool) iter.Seq[*disk] {
	switch {
	case x.stale:
		return s.earlier.disks.newestFirst(ids, all, x.now)
	case all:
		return s.disks.newestFirst()
	}
	return s.disks.named(ids)
}

func (s *Server) shotsFor(x *exchange, ids []string, all bool) iter.Seq[*snapshot] {
	return shown(x, s.shotsThen(x, ids, all), func(n *snapshot) string { return n.id })
}

func (s *Server) shotsThen(x *exchange, ids []string, all bool) iter.Seq[*snapshot] {
	if x.stale {
		return s.earlier.shots.newestFirst(ids, all, x.now)
	}
	return s.snapshots.newestFirst(ids, all)
}

func (s *Server) groupsFor(x *exchange) iter.Seq[*snapshotGroup] {
	return shown(x, s.groupsThen(x), func(g *snapshotGroup) string { return g.id })
}

func (s *Server) groupsThen(x *exchange) iter.Seq[*snapshotGroup] {
	if x.stale {
		return s.earlier.groups.newestFirst(nil, true, x.now)
	}
	return backward(s.snapshots.groups)
}

func (s *Server) tasksFor(x *exchange) iter.Seq[*task] {
	if x.stale {
		return s.earlier.tasks.newestFirst(nil, true, x.now)
	}
	return backward(s.tasks)
}

// instancesFor returns instances in their order, the first made first.
func (s *Server) instancesFor(x *exchange) []*instance {
	list := s.fleet.inOrder()
	if x.stale {
		list = slices.Collect(s.earlier.instances.newestFirst(nil, true, x.now))
		slices.Reverse(list)
	}
	return slices.Collect(shown(x, slices.Values(list), func(i *instance) string { return i.ID }))
}

func backward[T any](list []T) iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, v := range slices.Backward(list) {
			if !yield(v) {
				return
			}
		}
	}
}
