package ecs

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
)

// growing is an ECS with snapshots that can be used after a minute.
func growing(t *testing.T, n int) (*ecssim.Server, *Client, []disk.SnapshotID) {
	sim, c := simulate(t, func(config *ecssim.Config) {
		config.Latency.SnapshotCut, config.Latency.SnapshotUsable, config.Latency.SnapshotDone = 2*time.Second, time.Minute, 2*time.Minute
		config.Doubts.SnapshotUnattached = []string{"cloud_essd"}
	})
	sources := manyDisks(t, c, n/10+1) // each takes ten at a time
	ids := make([]disk.SnapshotID, n)
	var makers sync.WaitGroup
	for i := range ids {
		makers.Go(func() {
			name := fmt.Sprintf("shot-%d", i)
			id, err := c.CreateSnapshot(t.Context(), disk.SnapshotSpec{Name: name, Source: sources[i/10]}, disk.NewToken(name, 1))
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			ids[i] = id
		})
	}
	makers.Wait()
	return sim, c, ids
}

func usable(s disk.Snapshot) (bool, error) { return s.Usable, nil }

func TestWaitsForSnapshotsShareCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 150
		sim, c, ids := growing(t, n)
		began, before := time.Now(), calls(sim, "DescribeSnapshots")
		var all sync.WaitGroup
		for _, id := range ids {
			all.Go(func() {
				if shot, err := c.AwaitSnapshot(t.Context(), id, usable); err != nil || shot.ID != id || !shot.Usable {
					t.Errorf("snapshot %+v, error %v", shot, err)
				}
			})
		}
		all.Wait()
		took := time.Since(began)
		if took > 65*time.Second {
			t.Errorf("it took %v to see what takes a minute", took)
		}
		// Two calls for all, about every three seconds; each alone would make twenty.
		if reads := calls(sim, "DescribeSnapshots") - before; reads > 2*35 {
			t.Errorf("%d waits made %d calls in %v", n, reads, took)
		}
	})
}

func TestWaitsForGroupsShareCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, members = 30, 4
		sim, c := simulate(t, func(config *ecssim.Config) {
			config.Latency.SnapshotCut, config.Latency.SnapshotDone = time.Minute, 2*time.Minute
			config.Doubts.SnapshotUnattached = []string{"cloud_essd"}
		})
		sources := manyDisks(t, c, members*n)
		began := time.Now()
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				name, of := fmt.Sprintf("group-%d", i), sources[members*i:members*(i+1)]
				id, err := c.CreateGroup(t.Context(), disk.GroupSpec{Name: name, Sources: of}, disk.NewToken(name, 1))
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				group, err := c.AwaitGroup(t.Context(), id, func(g disk.Group) (bool, error) { return g.Taken(), nil })
				var got []disk.ID
				for _, shot := range group.Members {
					got = append(got, shot.Source)
				}
				slices.Sort(got)
				if want := slices.Sorted(slices.Values(of)); err != nil || group.ID != id || !slices.Equal(got, want) {
					t.Errorf("%s: group %s of %v, want %s of %v; error %v", name, group.ID, got, id, want, err)
				}
			})
		}
		all.Wait()
		took := time.Since(began)
		if took > 65*time.Second {
			t.Errorf("it took %v to see what takes a minute", took)
		}
		// Three calls for the groups and two for their members, about every three
		// seconds; each group alone would make twenty of either.
		if reads := calls(sim, "DescribeSnapshotGroups"); reads > 3*35 {
			t.Errorf("%d waits made %d DescribeSnapshotGroups in %v", n, reads, took)
		}
		if reads := calls(sim, "DescribeSnapshots"); reads > 2*35 {
			t.Errorf("%d waits made %d DescribeSnapshots in %v", n, reads, took)
		}
	})
}

func TestReadsOfSnapshotsShareCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c, ids := growing(t, 100)
		before := calls(sim, "DescribeSnapshots")
		var all sync.WaitGroup
		for _, id := range append(slices.Clone(ids), "s-none", "another form") {
			all.Go(func() {
				shot, err := c.GetSnapshot(t.Context(), id)
				if there := slices.Contains(ids, id); there && (err != nil || shot.ID != id) {
					t.Errorf("%s: snapshot %+v, error %v", id, shot, err)
				} else if !there {
					wantKind(t, err, disk.NotFound)
				}
			})
		}
		all.Wait()
		if reads := calls(sim, "DescribeSnapshots") - before; reads > 4 {
			t.Errorf("102 reads made %d calls", reads)
		}
	})
}

func TestAnIDThatECSRefusesTakesNoOtherAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, ids := growing(t, 2)
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := c.GetSnapshot(t.Context(), ids[0]); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() { _, _ = c.GetSnapshot(t.Context(), "S_odd.one") })
		all.Wait()
	})
}

func TestWaitsForTasksShareCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 40
		sim, c := simulate(t, func(config *ecssim.Config) { config.Latency.Modify = 5 * time.Minute })
		disks := manyDisks(t, c, n)
		tasks := make([]disk.TaskID, n)
		var all sync.WaitGroup
		for i, id := range disks {
			all.Go(func() {
				var err error
				if tasks[i], err = c.Move(t.Context(), id, disk.Move{Category: "cloud_auto"}); err != nil || tasks[i] == "" {
					t.Errorf("task %q, error %v", tasks[i], err)
				}
			})
		}
		all.Wait()
		before := calls(sim, "DescribeTasks")
		for i, id := range disks {
			all.Go(func() {
				if err := c.AwaitTask(t.Context(), id, tasks[i]); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		// One call for all every ten seconds; each alone would make thirty.
		if reads := calls(sim, "DescribeTasks") - before; reads > 40 {
			t.Errorf("%d waits made %d calls", n, reads)
		}
	})
}

func TestAWaitForASnapshotEndsInTimeToAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c, ids := growing(t, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := c.AwaitSnapshot(ctx, ids[0], usable)
		wantKind(t, err, disk.Pending)
		if ctx.Err() != nil {
			t.Error("the answer came after the deadline")
		}
	})
}
