package state

import (
	"iter"
	"maps"
	"slices"
	"time"
)

// View is a region as it is, or as it was.
type View struct {
	r   *Region
	was bool
	at  time.Time
}

// Present is the region as it is.
func (r *Region) Present() View { return View{r: r} }

// AsOf is the region as it was at a time, which is not longer ago than Config.Past.
func (r *Region) AsOf(t time.Time) View { return View{r: r, was: true, at: t} }

// Disks yields the disks of some IDs, or all, the last made first.
func (v View) Disks(ids []string, all bool) iter.Seq[*Disk] {
	switch {
	case v.was:
		return v.r.earlier.disks.newestFirst(ids, all, v.at)
	case all:
		return backward(v.r.disks.order)
	}
	return named(v.r.disks.byID, ids)
}

// Snapshots yields the snapshots of some IDs, or all, the last made first.
func (v View) Snapshots(ids []string, all bool) iter.Seq[*Snapshot] {
	switch {
	case v.was:
		return v.r.earlier.snapshots.newestFirst(ids, all, v.at)
	case all:
		return backward(v.r.snapshots.order)
	}
	return named(v.r.snapshots.byID, ids)
}

// Groups yields all snapshot groups, the last made first.
func (v View) Groups() iter.Seq[*SnapshotGroup] {
	if v.was {
		return v.r.earlier.groups.newestFirst(nil, true, v.at)
	}
	return backward(v.r.snapshots.groups)
}

// Tasks yields all tasks, the last made first.
func (v View) Tasks() iter.Seq[*Task] {
	if v.was {
		return v.r.earlier.tasks.newestFirst(nil, true, v.at)
	}
	return backward(v.r.tasks)
}

// Instances yields all instances, the first made first.
func (v View) Instances() iter.Seq[*Instance] {
	if v.was {
		return backward(slices.Collect(v.r.earlier.instances.newestFirst(nil, true, v.at)))
	}
	return slices.Values(v.r.fleet.inOrder())
}

// AllDisks returns all disks, the first made first. Nobody may change the list.
func (r *Region) AllDisks() []*Disk { return r.disks.order }

func backward[T any](list []T) iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, v := range slices.Backward(list) {
			if !yield(v) {
				return
			}
		}
	}
}

// named yields the things of some IDs, the last made first.
func named[T thing[T]](byID map[string]T, ids []string) iter.Seq[T] {
	found := map[string]T{}
	for _, id := range ids {
		if v, is := byID[id]; is {
			found[id] = v
		}
	}
	return slices.Values(slices.SortedFunc(maps.Values(found), lastMadeFirst))
}

func lastMadeFirst[T thing[T]](a, b T) int { return b.number() - a.number() }
