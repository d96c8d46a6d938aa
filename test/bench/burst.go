package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/topodisk/topodisk/test/lab/audit"
	"github.com/topodisk/topodisk/test/lab/process"
)

// bursts are many claims at once, in the small cluster. The first burst is not measured: an API server that is new closes
// every watch of PersistentVolumes while its cache of their events grows, which would cost only the program that runs first.
func (e *environment) bursts(ctx context.Context, s scale, t *table) error {
	if _, err := e.burst(ctx, e.upstream, s.claims, waitForConsumer, false, unlimited...); err != nil {
		return err
	}
	for _, mode := range []storagev1.VolumeBindingMode{waitForConsumer, immediate} {
		var counts [2]requestCounts
		var rates [2][]float64
		for round := range s.runs {
			for i, p := range e.inTurn(round) {
				got, err := e.burst(ctx, p, s.claims, mode, round == 0, unlimited...)
				if err != nil {
					return err
				}
				if rates[i] = append(rates[i], got.rate); round == 0 {
					counts[i] = got.requestCounts
				}
			}
		}
		n := float64(s.claims)
		t.bound(fmt.Sprintf("API writes a provisioned claim (PV and journal), %d at once, %s", s.claims, mode), float64(counts[0].writes+counts[0].journal)/n, float64(counts[1].writes)/n, "", 1.1)
		t.bound(fmt.Sprintf("events a provisioned claim, %d at once, %s", s.claims, mode), float64(counts[0].events)/n, float64(counts[1].events)/n, "", 1)
		t.bound(fmt.Sprintf("API reads a provisioned claim, %d at once, %s", s.claims, mode), float64(counts[0].reads)/n, float64(counts[1].reads)/n, "", 0)
		t.rounds(fmt.Sprintf("claims a second, %d at once, QPS not limiting, 3 nodes, %s", s.claims, mode), rates, "/s", atLeast(1))
	}
	return nil
}

// defaults are many claims at once, with the limits that each program has by itself.
func (e *environment) defaults(ctx context.Context, _ scale, t *table) error {
	var rates [2]float64
	for i, p := range e.both() {
		got, err := e.burst(ctx, p, 200, waitForConsumer, false)
		if err != nil {
			return err
		}
		rates[i] = got.rate
	}
	t.ratio("claims a second, 200 at once, at each one's defaults", rates[0], rates[1], "/s", atLeast(10))
	return nil
}

// burstResult is what a run of many claims has shown.
type burstResult struct {
	requestCounts
	rate float64 // volumes saved a second, from the first to the last
	rss  int64   // bytes, when the last was saved
}

// burst starts a provisioner for n claims that exist already. With toTheEnd it waits until the provisioner sends no more
// requests, events included, so that all can be counted.
func (e *environment) burst(ctx context.Context, p provisioner, n int, mode storagev1.VolumeBindingMode, toTheEnd bool, args ...string) (burstResult, error) {
	class, err := e.addReady(ctx, n, mode)
	if err != nil {
		return burstResult{}, err
	}
	proc, err := e.start(p, args...)
	if err != nil {
		return burstResult{}, err
	}
	all, got, err := e.watch(ctx, p, proc, n, toTheEnd)
	e.StopProgram(proc, false)
	if err != nil {
		return burstResult{}, fmt.Errorf("%s: %d of %d claims have a volume: %w", p.name, len(saves(all, p)), n, err)
	}
	times := saves(all, p)
	got.requestCounts, got.rate = count(all, p.name), perSecond(times)
	return got, e.clear(ctx, class)
}

// addReady makes claims of a class of their own, and forgets the requests until then.
func (e *environment) addReady(ctx context.Context, n int, mode storagev1.VolumeBindingMode) (class string, err error) {
	if class, err = e.addClass(ctx, mode); err != nil {
		return "", err
	}
	return class, errors.Join(e.addClaims(ctx, class, n, mode), e.audit.Skip())
}

// watch collects the requests of a provisioner until it has saved n volumes, or, with toTheEnd, until it sends no more.
func (e *environment) watch(ctx context.Context, p provisioner, proc *process.Process, n int, toTheEnd bool) (all []audit.Request, got burstResult, err error) {
	if all, err = e.collect(ctx, func(all []audit.Request) bool { return len(saves(all, p)) >= n }); err != nil {
		return all, got, err
	}
	if got.rss, err = memoryOf(proc, "VmRSS"); err != nil {
		return all, got, err
	}
	if toTheEnd {
		var rest []audit.Request
		rest, err = e.quiet(ctx, p)
		all = append(all, rest...)
	}
	return all, got, err
}

// quietTime is for how long a program that is done sends no request, but for those for its Lease.
const quietTime = 6 * time.Second

// quiet collects requests until the program has sent none for quietTime.
func (e *environment) quiet(ctx context.Context, p provisioner) ([]audit.Request, error) {
	last := time.Now()
	return e.collectMore(ctx, func(more []audit.Request) bool {
		if slices.ContainsFunc(more, func(r audit.Request) bool { return r.Program() == p.name && r.Object.Resource != "leases" }) {
			last = time.Now()
		}
		return time.Since(last) > quietTime
	})
}

// perSecond is the rate from the first to the last.
func perSecond(times []time.Time) float64 {
	return float64(len(times)-1) / times[len(times)-1].Sub(times[0]).Seconds()
}

// saves returns when each PersistentVolume was saved, in their order.
func saves(all []audit.Request, p provisioner) []time.Time {
	var times []time.Time
	for _, r := range all {
		if r.Program() == p.name && r.Is("create", "persistentvolumes") && r.Succeeded() {
			times = append(times, r.Answered)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	return times
}

// median returns the median of values.
func median[T cmp.Ordered](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
