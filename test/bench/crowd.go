package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	storagev1 "k8s.io/api/storage/v1"
)

// crowds are many claims at once, in the small cluster.
func (a *arena) crowds(ctx context.Context, s scale, d *duel) error {
	for _, mode := range []storagev1.VolumeBindingMode{late, atOnce} {
		var rates [2][]float64
		var counts [2]asked
		for range s.runs {
			for i, c := range []contender{a.ours, a.upstream} {
				t, rate, err := a.rush(ctx, c, s.claims, mode, unlimited...)
				if err != nil {
					return err
				}
				rates[i], counts[i] = append(rates[i], rate), t
			}
		}
		d.ratio(fmt.Sprintf("claims a second, %d at once, %s, QPS not limiting", s.claims, mode), middle(rates[0]), middle(rates[1]), "/s", atLeast(0.95))
		n := float64(s.claims)
		d.bound(fmt.Sprintf("API writes a provisioned claim, %d at once, %s (PV and journal)", s.claims, mode), float64(counts[0].writes+counts[0].journal)/n, float64(counts[1].writes)/n, 1.1)
		d.bound(fmt.Sprintf("events a provisioned claim, %d at once, %s", s.claims, mode), float64(counts[0].events)/n, float64(counts[1].events)/n, 1)
		d.bound(fmt.Sprintf("API reads a provisioned claim, %s", mode), float64(counts[0].reads)/n, float64(counts[1].reads)/n, 0)
	}
	var rates [2]float64
	for i, c := range []contender{a.ours, a.upstream} {
		var err error
		if _, rates[i], err = a.rush(ctx, c, 200, late); err != nil {
			return err
		}
	}
	d.ratio("claims a second, 200 at once, at each one's defaults", rates[0], rates[1], "/s", atLeast(10))
	return nil
}

// rush has a provisioner begin with n claims that are there already, and returns what it asked of the API server and
// how many volumes it saved a second, from the first to the last.
func (a *arena) rush(ctx context.Context, c contender, n int, mode storagev1.VolumeBindingMode, args ...string) (asked, float64, error) {
	class, err := a.addClass(ctx, mode)
	if err != nil {
		return asked{}, 0, err
	}
	if err := a.addClaims(ctx, class, n, mode); err != nil {
		return asked{}, 0, err
	}
	if err := a.audit.skip(); err != nil {
		return asked{}, 0, err
	}
	process, err := a.start(c, args...)
	if err != nil {
		return asked{}, 0, err
	}
	all, err := a.collect(ctx, func(all []request) bool { return len(saves(all, c)) >= n })
	if err == nil {
		err = sleepFor(ctx, 5*time.Second) // for what comes after: events, the end of the journal
	}
	a.StopProgram(process, false)
	if err != nil {
		return asked{}, 0, fmt.Errorf("%s: %d of %d claims have a volume: %w", c.name, len(saves(all, c)), n, err)
	}
	rest, err := a.audit.read()
	if err != nil {
		return asked{}, 0, err
	}
	all = append(all, rest...)
	times := saves(all, c)
	took := times[len(times)-1].Sub(times[0]).Seconds()
	return count(all, c.name), float64(len(times)-1) / took, a.clear(ctx, class)
}

// saves returns when each PersistentVolume was saved, in their order.
func saves(all []request, c contender) []time.Time {
	var times []time.Time
	for _, r := range all {
		if r.by(c.name) && r.is("create", "persistentvolumes") && r.succeeded() {
			times = append(times, r.Answered)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	return times
}

// alone is one claim for itself.
func (a *arena) alone(ctx context.Context, _ scale, d *duel) error {
	var all [2]float64
	for i, c := range []contender{a.ours, a.upstream} {
		class, err := a.addClass(ctx, late)
		if err != nil {
			return err
		}
		process, err := a.start(c, unlimited...)
		if err != nil {
			return err
		}
		if err := errors.Join(sleepFor(ctx, 3*time.Second), a.audit.skip(), a.addClaims(ctx, class, 1, late)); err != nil {
			return err
		}
		requests, err := a.collect(ctx, func(all []request) bool { return len(saves(all, c)) == 1 })
		if err == nil {
			err = sleepFor(ctx, 5*time.Second)
		}
		a.StopProgram(process, false)
		if err != nil {
			return err
		}
		rest, err := a.audit.read()
		if err != nil {
			return err
		}
		t := count(append(requests, rest...), c.name)
		all[i] = float64(t.writes + t.journal + t.events)
		if err := a.clear(ctx, class); err != nil {
			return err
		}
	}
	d.bound("API writes for one claim alone, events and journal included", all[0], all[1], 3)
	return nil
}

// large is a cluster of many nodes and volumes.
func (a *arena) large(ctx context.Context, s scale, d *duel) error {
	if err := errors.Join(a.addNodes(ctx, 3, s.nodes), a.addBound(ctx, s.volumes)); err != nil {
		return err
	}
	var rates, memory [2]float64
	for i, c := range []contender{a.ours, a.upstream} {
		process, err := a.start(c, unlimited...)
		if err != nil {
			return err
		}
		if err := sleepFor(ctx, 30*time.Second); err != nil {
			return err
		}
		bytes, err := rss(process)
		a.StopProgram(process, false)
		if err != nil {
			return err
		}
		memory[i] = float64(bytes) / (1 << 20)
		if _, rates[i], err = a.rushAmong(ctx, c, s.claims); err != nil {
			return err
		}
	}
	d.ratio(fmt.Sprintf("claims a second, %d at once, %d nodes and %d PVs", s.claims, s.nodes, s.volumes), rates[0], rates[1], "/s", atLeast(5))
	d.ratio(fmt.Sprintf("RSS with %d PVs and claims and %d nodes, 30 s after the start", s.volumes, s.nodes), memory[0], memory[1], " MiB", atMost(1./3))
	return nil
}

// rushAmong is rush in a cluster whose other claims stay.
func (a *arena) rushAmong(ctx context.Context, c contender, n int) (asked, float64, error) {
	class, err := a.addClass(ctx, late)
	if err != nil {
		return asked{}, 0, err
	}
	if err := a.addClaims(ctx, class, n, late); err != nil {
		return asked{}, 0, err
	}
	if err := a.audit.skip(); err != nil {
		return asked{}, 0, err
	}
	process, err := a.start(c, unlimited...)
	if err != nil {
		return asked{}, 0, err
	}
	defer a.StopProgram(process, false)
	all, err := a.collect(ctx, func(all []request) bool { return len(saves(all, c)) >= n })
	if err != nil {
		return asked{}, 0, err
	}
	times := saves(all, c)
	return count(all, c.name), float64(len(times)-1) / times[len(times)-1].Sub(times[0]).Seconds(), nil
}

// middle is the median.
func middle(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
