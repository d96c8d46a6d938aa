package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/topodisk/topodisk/test/lab"
)

// crowds are many claims at once, in the small cluster.
func (a *arena) crowds(ctx context.Context, s scale, d *duel) error {
	for _, mode := range []storagev1.VolumeBindingMode{late, atOnce} {
		var counts [2]asked
		var rates [2][]float64
		for round := range s.runs {
			for i, c := range a.both() {
				got, err := a.rush(ctx, c, s.claims, mode, round == 0, unlimited...)
				if err != nil {
					return err
				}
				if rates[i] = append(rates[i], got.rate); round == 0 {
					counts[i] = got.asked
				}
			}
		}
		n := float64(s.claims)
		d.bound(fmt.Sprintf("API writes a provisioned claim (PV and journal), %d at once, %s", s.claims, mode), float64(counts[0].writes+counts[0].journal)/n, float64(counts[1].writes)/n, "", 1.1)
		d.bound(fmt.Sprintf("events a provisioned claim, %d at once, %s", s.claims, mode), float64(counts[0].events)/n, float64(counts[1].events)/n, "", 1)
		d.bound(fmt.Sprintf("API reads a provisioned claim, %d at once, %s", s.claims, mode), float64(counts[0].reads)/n, float64(counts[1].reads)/n, "", 0)
		d.rounds(fmt.Sprintf("claims a second, %d at once, QPS not limiting, 3 nodes, %s", s.claims, mode), rates, "/s", atLeast(0.95))
	}
	return nil
}

// defaults are many claims at once, with the limits that each program has by itself.
func (a *arena) defaults(ctx context.Context, _ scale, d *duel) error {
	var rates [2]float64
	for i, c := range a.both() {
		got, err := a.rush(ctx, c, 200, late, false)
		if err != nil {
			return err
		}
		rates[i] = got.rate
	}
	d.ratio("claims a second, 200 at once, at each one's defaults", rates[0], rates[1], "/s", atLeast(10))
	return nil
}

// course is what a run of many claims has shown.
type course struct {
	asked
	rate float64 // volumes saved a second, from the first to the last
	rss  int64   // bytes, when the last was saved
}

// rush has a provisioner begin with n claims that are there already. To count all that it asks of the API server it is
// left alone afterwards until it asks for nothing more, events included.
func (a *arena) rush(ctx context.Context, c contender, n int, mode storagev1.VolumeBindingMode, toTheEnd bool, args ...string) (course, error) {
	class, err := a.addReady(ctx, n, mode)
	if err != nil {
		return course{}, err
	}
	process, err := a.start(c, args...)
	if err != nil {
		return course{}, err
	}
	all, got, err := a.watch(ctx, c, process, n, toTheEnd)
	a.StopProgram(process, false)
	if err != nil {
		return course{}, fmt.Errorf("%s: %d of %d claims have a volume: %w", c.name, len(saves(all, c)), n, err)
	}
	times := saves(all, c)
	got.asked, got.rate = count(all, c.name), perSecond(times)
	return got, a.clear(ctx, class)
}

// addReady makes claims of a class of their own, and forgets what was asked until then.
func (a *arena) addReady(ctx context.Context, n int, mode storagev1.VolumeBindingMode) (class string, err error) {
	if class, err = a.addClass(ctx, mode); err != nil {
		return "", err
	}
	return class, errors.Join(a.addClaims(ctx, class, n, mode), a.audit.Skip())
}

// watch collects what a provisioner asks until it has saved n volumes, or until it is quiet again.
func (a *arena) watch(ctx context.Context, c contender, process *lab.Process, n int, toTheEnd bool) (all []lab.Request, got course, err error) {
	if all, err = a.collect(ctx, func(all []lab.Request) bool { return len(saves(all, c)) >= n }); err != nil {
		return all, got, err
	}
	if got.rss, err = memoryOf(process, "VmRSS"); err != nil {
		return all, got, err
	}
	if toTheEnd {
		var rest []lab.Request
		rest, err = a.quiet(ctx, c)
		all = append(all, rest...)
	}
	return all, got, err
}

// silence is how long a program asks for nothing before it is taken to be done. A leader's Lease is not looked at.
const silence = 6 * time.Second

// quiet collects requests until the program has been silent.
func (a *arena) quiet(ctx context.Context, c contender) ([]lab.Request, error) {
	last := time.Now()
	return a.collectMore(ctx, func(more []lab.Request) bool {
		if slices.ContainsFunc(more, func(r lab.Request) bool { return r.By(c.name) && r.Object.Resource != "leases" }) {
			last = time.Now()
		}
		return time.Since(last) > silence
	})
}

// perSecond is the rate from the first to the last.
func perSecond(times []time.Time) float64 {
	return float64(len(times)-1) / times[len(times)-1].Sub(times[0]).Seconds()
}

// saves returns when each PersistentVolume was saved, in their order.
func saves(all []lab.Request, c contender) []time.Time {
	var times []time.Time
	for _, r := range all {
		if r.By(c.name) && r.Is("create", "persistentvolumes") && r.Succeeded() {
			times = append(times, r.Answered)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	return times
}

// alone is one claim for itself, to a provisioner at rest.
func (a *arena) alone(ctx context.Context, _ scale, d *duel) error {
	var all [2]float64
	for i, c := range a.both() {
		class, err := a.addClass(ctx, late)
		if err != nil {
			return err
		}
		process, err := a.start(c, unlimited...)
		if err != nil {
			return err
		}
		if err := errors.Join(sleepFor(ctx, 3*time.Second), a.audit.Skip(), a.addClaims(ctx, class, 1, late)); err != nil {
			return err
		}
		requests, _, err := a.watch(ctx, c, process, 1, true)
		a.StopProgram(process, false)
		if err != nil {
			return err
		}
		t := count(requests, c.name)
		all[i] = float64(t.writes + t.journal + t.events)
		if err := a.clear(ctx, class); err != nil {
			return err
		}
	}
	d.bound("API writes for one claim alone, events and journal included", all[0], all[1], "", 3)
	return nil
}

// middle is the median.
func middle(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
