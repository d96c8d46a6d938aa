package main

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
)

// virtual measures what is the same on every machine.
func virtual(t *testing.T, r *report) {
	r.notes = append(r.notes,
		"Figures in calls and ratios are measured under a virtual clock (testing/synctest), in one process: SDK, signing, JSON and pacing are real, the network is not.",
		"600 calls a minute means the simulator's profile `default` with the same limit for AttachDisk: 600 calls of each action, 1 200 of DescribeDisks, in windows that begin with the minute. The client does not know the limits.",
		"At N=1 five calls change something; the others are reads that look for the result. Latencies are fixed there, and so is the count.")
	for _, n := range []int{1, 100, 1000, 5000} {
		for _, profile := range []string{"off", "default"} {
			for _, queues := range []ecssim.Queues{ecssim.Parallel, ecssim.Serial} {
				synctest.Test(t, func(t *testing.T) { lifecycles(t, r, n, profile, queues) })
			}
		}
	}
	for _, measure := range []func(*testing.T, *report){createsAlone, thousandCreates, manyAttaches, attachesInARow, addedTime, failedPolls} {
		synctest.Test(t, func(t *testing.T) { measure(t, r) })
	}
}

// lifecycles runs n at once and takes down what they cost.
func lifecycles(t *testing.T, r *report, n int, profile string, queues ecssim.Queues) {
	throttle, err := ecssim.ThrottleProfile(profile)
	if err != nil {
		t.Fatal(err)
	}
	delete(throttle.Limits, "AttachDisk") // it has that of the others, so that runs can be compared
	w := newWorkload(t, func(c *ecssim.Config) { c.Throttle, c.Queues = throttle, queues })
	took := w.lifecycles(n)
	w.check(t, n)
	sum := countCalls(w.sim.State().Calls)
	each := float64(sum.calls) / float64(n)
	perOperation := float64(sum.mutating) / float64(operationsOfLifecycle*n)
	r.runs = append(r.runs, runRow(n, "virtual", profile, queues, sum, took, w.later.Load()))
	fmt.Println(r.runs[len(r.runs)-1])
	switch mode := mode(queues); {
	case n == 1000 && profile == "off":
		r.add(figure{"calls per lifecycle, N=1 000, " + mode, each, "", 5.3, "strict minimum 5.02, the incumbent >= 8"})
	case n == 5000 && profile == "default":
		r.add(figure{"mutating calls per operation, N=5 000, 600 calls a minute, " + mode, perOperation, "", 1.01, "EBS published 1.13"})
		r.add(figure{"throttled calls, N=5 000, 600 calls a minute, " + mode,
			100 * float64(sum.throttled) / float64(sum.calls), "%", 1, "EBS published 11.1 %"})
	}
}

func mode(q ecssim.Queues) string {
	if q == ecssim.Serial {
		return "instances attach one at a time"
	}
	return "instances attach in parallel"
}

func runRow(n int, clock, profile string, queues ecssim.Queues, sum callCounts, took time.Duration, later int64) string {
	limit := map[string]string{"off": "no limit", "default": "600", "generous": "6 000"}[profile]
	parallel := "one at a time"
	if queues != ecssim.Serial {
		parallel = fmt.Sprintf("%d attaches, %d detaches at once", queues.Attach, queues.Detach)
	}
	return fmt.Sprintf("| %d | %s | %s | %s | %.3f | %.4f | %d (%.2f %%) | %d | %s | %d |", n, clock, limit, parallel,
		float64(sum.calls)/float64(n), float64(sum.mutating)/float64(operationsOfLifecycle*n),
		sum.throttled, 100*float64(sum.throttled)/float64(sum.calls), sum.conflicts, took.Round(100*time.Millisecond), later)
}

// thousandCreates begins with a window and has to wait for the next.
func thousandCreates(t *testing.T, r *report) {
	const n, limit = 1000, 600
	throttle, err := ecssim.ThrottleProfile("default")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorkload(t, func(c *ecssim.Config) { c.Throttle = throttle })
	one := elapsed(func() { mustCreate(t, w, "first") })
	time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
	took := elapsed(func() {
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() { mustCreate(t, w, fmt.Sprintf("vol-%d", i)) })
		}
		all.Wait()
	})
	bound := time.Duration((n+limit-1)/limit-1)*time.Minute + one
	r.add(figure{"time for 1 000 creates from a window's start, 600 a minute / its bound", ratio(took, bound), "", 1.05, "bound: the windows and one create"})
}

// createsAlone is the dearest way to learn a window: five thousand calls of one
// action at once.
func createsAlone(t *testing.T, r *report) {
	const n = 5000
	throttle, err := ecssim.ThrottleProfile("default")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorkload(t, func(c *ecssim.Config) { c.Throttle = throttle })
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { mustCreate(t, w, fmt.Sprintf("vol-%d", i)) })
	}
	all.Wait()
	sum := countCalls(w.sim.State().Calls)
	r.add(figure{"throttled calls of one action, 5 000 creates alone and at once, 600 calls a minute", 100 * float64(sum.throttled) / float64(sum.mutating), "%", 1, "the most expensive way to learn the windows"})
}

func mustCreate(t *testing.T, w *workload, name string) disk.ID {
	made, err := create(context.Background(), w.client, name)
	if err != nil {
		t.Errorf("create %s: %v", name, err)
	}
	return made.ID
}

// mustAttach reads a disk and attaches it, as the driver does.
func mustAttach(t *testing.T, w *workload, at disk.InstanceID, id disk.ID) {
	if err := w.attach(context.Background(), at, id); err != nil {
		t.Errorf("attach %s: %v", id, err)
	}
}

// disksAtRest makes disks and waits until ECS is done with them.
func disksAtRest(t *testing.T, w *workload, prefix string, n int) []disk.ID {
	ids := make([]disk.ID, n)
	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() { ids[i] = mustCreate(t, w, fmt.Sprintf("%s-%d", prefix, i)) })
	}
	all.Wait()
	time.Sleep(time.Minute)
	return ids
}

// idleAttach is what one attach takes when nothing else goes on, and the
// client has seen a few.
func idleAttach(t *testing.T, w *workload) time.Duration {
	const warm = 8
	var last time.Duration
	for i, id := range disksAtRest(t, w, "warm", warm) {
		last = elapsed(func() { mustAttach(t, w, instance(i+1), id) })
		time.Sleep(time.Minute)
	}
	return last
}

// attachAll attaches disks to one instance, all at once.
func attachAll(t *testing.T, w *workload, ids []disk.ID) time.Duration {
	return elapsed(func() {
		var all sync.WaitGroup
		for _, id := range ids {
			all.Go(func() { mustAttach(t, w, instance(0), id) })
		}
		all.Wait()
	})
}

func manyAttaches(t *testing.T, r *report) {
	w := newWorkload(t, func(c *ecssim.Config) { c.Queues = ecssim.Parallel })
	one := idleAttach(t, w)
	took := attachAll(t, w, disksAtRest(t, w, "vol", 64))
	r.add(figure{"64 disks to one instance, 32 at once / one attach", ratio(took, one), "", 2.5, "bound 2; one at a time it is 64"})
}

func attachesInARow(t *testing.T, r *report) {
	const n = 28
	w := newWorkload(t, nil)
	one := idleAttach(t, w)
	took := attachAll(t, w, disksAtRest(t, w, "vol", n))
	r.add(figure{"28 disks to one instance, one at a time / 28 idle attaches", ratio(took, n*one), "", 1.05, "bound 1"})
}

// addedTime is what the client adds to what ECS takes: to its reply, to the
// change that follows, and to the look that sees it.
func addedTime(t *testing.T, r *report) {
	const n = 100 // from the first on: it learns on the way how long ECS takes
	w := newWorkload(t, nil)
	l := realLatency(t)
	look := l.API["DescribeDisks"] + l.PerDisk
	added := map[string][]time.Duration{}
	for i := range n {
		var id disk.ID
		took := map[string]time.Duration{}
		took["create"] = elapsed(func() { id = mustCreate(t, w, fmt.Sprintf("vol-%d", i)) }) - l.API["CreateDisk"] - look
		time.Sleep(time.Minute)
		took["attach"] = elapsed(func() { mustAttach(t, w, instance(0), id) }) - look - l.API["AttachDisk"] - l.Attach - look
		time.Sleep(time.Minute)
		took["detach"] = elapsed(func() {
			if err := w.detach(context.Background(), instance(0), id); err != nil {
				t.Error(err)
			}
		}) - look - l.API["DetachDisk"] - l.Detach - look
		time.Sleep(time.Minute)
		for what, d := range took {
			added[what] = append(added[what], d)
		}
	}
	for _, f := range []struct {
		what string
		most float64 // ms; how long an attach or a detach goes on after ECS's reply is not known before
	}{{"create", 5}, {"attach", 100}, {"detach", 100}} {
		r.add(figure{"time added to one " + f.what + " when idle, p50", milliseconds(median(added[f.what])), "ms", f.most, "EBS 500-1500 ms"})
	}
}

func realLatency(t *testing.T) ecssim.Latency {
	t.Helper()
	l, err := ecssim.Profile("real")
	if err != nil {
		t.Fatal(err)
	}
	l.Spread = 0 // so that runs can be compared
	return l
}

// failedPolls lets polls be throttled, and fail, while a hundred attaches wait.
func failedPolls(t *testing.T, r *report) {
	failures := 0
	for _, fault := range []ecssim.Fault{
		{Action: "DescribeDisks", Do: ecssim.FaultThrottle, Count: 1, Code: "Throttling.User"},
		{Action: "DescribeDisks", Do: ecssim.FaultError, Count: 1, Status: 503, Code: "ServiceUnavailable"},
		{Action: "DescribeDisks", Do: ecssim.FaultLostReply, Count: 1},
		{Action: "DescribeDisks", Do: ecssim.FaultTruncated, Count: 1},
	} {
		w := newWorkload(t, func(c *ecssim.Config) { c.Queues = ecssim.Parallel })
		disks := make([]disk.Disk, instances) // as they are read before they are attached
		for i, id := range disksAtRest(t, w, "vol", instances) {
			d, err := w.client.Get(context.Background(), id)
			if err != nil {
				t.Fatal(err)
			}
			disks[i] = d
		}
		if err := w.sim.AddFault(fault); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var all sync.WaitGroup
		for i, d := range disks {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), otherTime)
				defer cancel()
				if _, _, err := w.client.Attach(ctx, instance(i), d.ID, false); err != nil {
					mu.Lock()
					failures++
					mu.Unlock()
				}
			})
		}
		all.Wait()
		if hit := w.sim.Faults()[0].Hit; hit != 1 {
			t.Errorf("%d polls were hit, want 1", hit)
		}
	}
	r.add(figure{"operations failed by one throttled or failed poll, 100 waiting, four kinds of failure", float64(failures), "", 0, "the incumbent up to 100 for each"})
}

func elapsed(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
