package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/test/lab"
)

// deleting are many claims that are deleted at once.
func (a *arena) deleting(ctx context.Context, s scale, d *duel) error {
	var rates, writes, reads [2]float64
	for i, c := range a.both() {
		all, err := a.purge(ctx, c, s.deletions)
		if err != nil {
			return err
		}
		t := count(all, c.name)
		writes[i], reads[i] = float64(t.writes+t.journal)/float64(s.deletions), float64(t.reads)/float64(s.deletions)
		done := ends(all, c)
		rates[i] = float64(len(done)) / done[len(done)-1].Sub(begin(all, c)).Seconds()
	}
	d.bound("API writes a deleted PV", writes[0], writes[1], "", 2)
	d.bound("API reads a deleted PV", reads[0], reads[1], "", 1)
	d.ratio(fmt.Sprintf("deletions a second, %d at once, QPS 20", s.deletions), rates[0], rates[1], "/s", atLeast(0.95))
	return nil
}

// purge has a provisioner delete what is Released already when it starts.
func (a *arena) purge(ctx context.Context, c contender, n int) ([]lab.Request, error) {
	class, err := a.addClass(ctx, late)
	if err != nil {
		return nil, err
	}
	if err := a.addClaims(ctx, class, n, late); err != nil {
		return nil, err
	}
	process, err := a.start(c, unlimited...)
	if err != nil {
		return nil, err
	}
	err = a.phase(ctx, class, n, corev1.VolumeBound)
	a.StopProgram(process, false)
	if err != nil {
		return nil, err
	}
	if err := a.dropClaims(ctx, class); err != nil {
		return nil, err
	}
	if err := a.phase(ctx, class, n, corev1.VolumeReleased); err != nil {
		return nil, err
	}
	if err := a.audit.Skip(); err != nil {
		return nil, err
	}
	if process, err = a.start(c, limited(20)...); err != nil {
		return nil, err
	}
	defer a.StopProgram(process, false)
	all, err := a.collect(ctx, func(all []lab.Request) bool { return len(ends(all, c)) >= n })
	if err != nil {
		return all, err
	}
	rest, err := a.quiet(ctx, c)
	return append(all, rest...), err
}

// phase waits until all volumes of a class are in a phase.
func (a *arena) phase(ctx context.Context, class string, n int, phase corev1.PersistentVolumePhase) error {
	return a.Await(ctx, fmt.Sprintf("%d volumes of class %s are %s", n, class, phase), patience, func(ctx context.Context) (bool, error) {
		volumes, err := a.volumesOf(ctx, class)
		there := 0
		for _, pv := range volumes {
			if pv.Status.Phase == phase {
				there++
			}
		}
		return err == nil && there >= n, err
	})
}

// begin returns when the first PersistentVolume was asked for: who deletes many at once lets go of none for a while.
func begin(all []lab.Request, c contender) time.Time {
	var first time.Time
	for _, r := range all {
		if r.By(c.name) && (r.Is("get", "persistentvolumes") || r.Is("delete", "persistentvolumes")) && (first.IsZero() || r.Received.Before(first)) {
			first = r.Received
		}
	}
	return first
}

// ends returns when each PersistentVolume lost its finalizer, in their order.
func ends(all []lab.Request, c contender) []time.Time {
	var times []time.Time
	for _, r := range all {
		if r.By(c.name) && r.Is("patch", "persistentvolumes") && r.Succeeded() {
			times = append(times, r.Answered)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	return times
}
