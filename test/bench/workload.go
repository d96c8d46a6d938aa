package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs"
	"github.com/topodisk/topodisk/diskdriver/ecs/credentials"
	"github.com/topodisk/topodisk/ecssim"
)

const (
	region    = "cn-hangzhou"
	zone      = "cn-hangzhou-h"
	cluster   = "bench"
	instances = 100
)

// How long the sidecars give an operation, and how long they pause after one
// that is to be tried again.
const (
	createTime = 150 * time.Second // disk-provisioner
	otherTime  = 60 * time.Second  // the limit that topodisk's chart gives attaches, detaches and resizes
	firstPause = time.Second
	lastPause  = 5 * time.Minute
)

// workload is a simulator, a client of it, and what became of the operations.
type workload struct {
	sim    *ecssim.Server
	client *ecs.Client
	later  atomic.Int64 // answers to come back later
	failed atomic.Int64 // answers of any other kind
	errors sync.Map     // of those, by text
}

// newSimulator returns one with a hundred instances, each with room for 64 disks.
func newSimulator(change func(*ecssim.Config)) (*ecssim.Server, error) {
	latency, err := ecssim.Profile("real")
	if err != nil {
		return nil, err
	}
	latency.Spread = 0 // so that runs can be compared
	config := ecssim.Config{Region: region, Zones: []string{zone}, Latency: latency, LedgerSize: 1000}
	for i := range instances {
		config.Instances = append(config.Instances, ecssim.Instance{ID: string(instance(i)), Zone: zone, Type: "ecs.g6se.26xlarge"})
	}
	if change != nil {
		change(&config)
	}
	return ecssim.New(config)
}

func instance(i int) disk.InstanceID { return disk.InstanceID(fmt.Sprintf("i-%03d", i%instances)) }

// newClient returns a client of what answers at an endpoint, or of transport.
func newClient(endpoint string, transport http.RoundTripper) (*ecs.Client, error) {
	return ecs.NewClient(ecs.Config{
		Region: region, Endpoint: endpoint, ClusterID: cluster, Transport: transport,
		Credentials: credentials.Static(credentials.Keys{AccessKeyID: "bench-key-id", AccessKeySecret: "bench-key-secret"}),
	})
}

// newWorkload returns a workload in one process.
func newWorkload(t *testing.T, change func(*ecssim.Config)) *workload {
	t.Helper()
	sim, err := newSimulator(change)
	if err != nil {
		t.Fatal(err)
	}
	client, err := newClient("", sim)
	if err != nil {
		t.Fatal(err)
	}
	return &workload{sim: sim, client: client}
}

func create(ctx context.Context, c *ecs.Client, name string) (disk.Disk, error) {
	spec := disk.Spec{Name: name, Tags: disk.Tags{disk.VolumeNameTag: name, disk.ClusterTag: cluster, disk.OwnerTag: cluster}}
	return c.Create(ctx, spec, disk.Attempt{Zone: zone, Category: "cloud_essd", Level: disk.PL1, Size: 20}, disk.NewToken(name, 1))
}

// rpc does one operation as a sidecar would: again and again, until it is done.
func (w *workload) rpc(limit time.Duration, op func(context.Context) error) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		err := op(ctx)
		cancel()
		if err == nil {
			return
		}
		switch disk.KindOf(err) {
		case disk.Pending, disk.Throttled:
			w.later.Add(1)
		default:
			w.failed.Add(1)
			w.errors.Store(err.Error(), true)
		}
		time.Sleep(pause)
	}
}

// lifecycle is all that happens to one disk.
func (w *workload) lifecycle(i int) {
	c, at := w.client, instance(i)
	var id disk.ID
	w.rpc(createTime, func(ctx context.Context) error {
		made, err := create(ctx, c, fmt.Sprintf("vol-%d", i))
		id = made.ID
		return err
	})
	w.rpc(otherTime, func(ctx context.Context) error { return w.attach(ctx, at, id) })
	w.rpc(otherTime, func(ctx context.Context) error {
		d, err := c.Get(ctx, id)
		if err == nil {
			_, err = c.Resize(ctx, d, 30)
		}
		return err
	})
	w.rpc(otherTime, func(ctx context.Context) error { return w.detach(ctx, at, id) })
	w.rpc(otherTime, func(ctx context.Context) error { return c.Delete(ctx, id) })
}

// attach attaches a disk, which is read first if it hasn't just been, as the driver does.
func (w *workload) attach(ctx context.Context, at disk.InstanceID, id disk.ID) error {
	_, err := w.client.GetCached(ctx, id)
	if err == nil {
		_, _, err = w.client.Attach(ctx, at, id, false)
	}
	return err
}

// detach is attach for a detach.
func (w *workload) detach(ctx context.Context, at disk.InstanceID, id disk.ID) error {
	_, err := w.client.GetCached(ctx, id)
	if err == nil {
		_, _, err = w.client.Detach(ctx, at, id)
	}
	return err
}

// operationsOfLifecycle is how many of them change something.
const operationsOfLifecycle = 5

// lifecycles runs n of them at once and returns how long they took.
func (w *workload) lifecycles(n int) time.Duration {
	began := time.Now()
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { w.lifecycle(i) })
	}
	all.Wait()
	return time.Since(began)
}

// callCounts is what the simulator counted.
type callCounts struct{ calls, mutating, throttled, conflicts int }

var (
	throttles = ecssim.ThrottleCodes
	busy      = []string{"InvalidOperation.Conflict", "OperationConflict.DisksAttachingParallellyExceed", "DisksDetachingOnEcsExceeded"}
)

func countCalls(counts map[string]map[string]int) callCounts {
	var sum callCounts
	for action, codes := range counts {
		for code, n := range codes {
			sum.calls += n
			if action != "DescribeDisks" {
				sum.mutating += n
			}
			if slices.Contains(throttles, code) {
				sum.throttled += n
			}
			if slices.Contains(busy, code) {
				sum.conflicts += n
			}
		}
	}
	return sum
}

// check fails the test if the run was not what it should have been.
func (w *workload) check(t *testing.T, n int) {
	t.Helper()
	if err := w.sim.Check(); err != nil {
		t.Error(err)
	}
	st := w.sim.State()
	if st.DisksMade != n || st.DisksDeleted != n {
		t.Errorf("%d disks were made and %d deleted, want %d", st.DisksMade, st.DisksDeleted, n)
	}
	if failed := w.failed.Load(); failed > 0 {
		t.Errorf("%d operations failed", failed)
		w.errors.Range(func(text, _ any) bool { t.Error(text); return true })
	}
}
