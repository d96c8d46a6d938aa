package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/test/lab/audit"
)

// deleting are many claims that are deleted at once.
func (e *environment) deleting(ctx context.Context, s scale, t *table) error {
	var rates, writes, reads [2]float64
	for i, p := range e.both() {
		all, err := e.deleteAll(ctx, p, s.deletions)
		if err != nil {
			return err
		}
		t := count(all, p.name)
		writes[i], reads[i] = float64(t.writes+t.journal)/float64(s.deletions), float64(t.reads)/float64(s.deletions)
		done := ends(all, p)
		rates[i] = float64(len(done)) / done[len(done)-1].Sub(begin(all, p)).Seconds()
	}
	t.bound("API writes a deleted PV", writes[0], writes[1], "", 2)
	t.bound("API reads a deleted PV", reads[0], reads[1], "", 1)
	t.ratio(fmt.Sprintf("deletions a second, %d at once, QPS 20", s.deletions), rates[0], rates[1], "/s", atLeast(0.95))
	return nil
}

// deleteAll has a provisioner delete what is Released already when it starts.
func (e *environment) deleteAll(ctx context.Context, p provisioner, n int) ([]audit.Request, error) {
	class, err := e.addClass(ctx, waitForConsumer)
	if err != nil {
		return nil, err
	}
	if err := e.addClaims(ctx, class, n, waitForConsumer); err != nil {
		return nil, err
	}
	proc, err := e.start(p, unlimited...)
	if err != nil {
		return nil, err
	}
	err = e.phase(ctx, class, n, corev1.VolumeBound)
	e.StopProgram(proc, false)
	if err != nil {
		return nil, err
	}
	if err := e.dropClaims(ctx, class); err != nil {
		return nil, err
	}
	if err := e.phase(ctx, class, n, corev1.VolumeReleased); err != nil {
		return nil, err
	}
	if err := e.audit.Skip(); err != nil {
		return nil, err
	}
	if proc, err = e.start(p, limited(20)...); err != nil {
		return nil, err
	}
	defer e.StopProgram(proc, false)
	all, err := e.collect(ctx, func(all []audit.Request) bool { return len(ends(all, p)) >= n })
	if err != nil {
		return all, err
	}
	rest, err := e.quiet(ctx, p)
	return append(all, rest...), err
}

// phase waits until all volumes of a class are in a phase.
func (e *environment) phase(ctx context.Context, class string, n int, phase corev1.PersistentVolumePhase) error {
	return e.Await(ctx, fmt.Sprintf("%d volumes of class %s are %s", n, class, phase), waitLimit, func(ctx context.Context) (bool, error) {
		volumes, err := e.volumesOf(ctx, class)
		there := 0
		for _, pv := range volumes {
			if pv.Status.Phase == phase {
				there++
			}
		}
		return err == nil && there >= n, err
	})
}

// begin returns when the first PersistentVolume was requested: who deletes many at once lets go of none for a while.
func begin(all []audit.Request, p provisioner) time.Time {
	var first time.Time
	for _, r := range all {
		if r.Program() == p.name && (r.Is("get", "persistentvolumes") || r.Is("delete", "persistentvolumes")) && (first.IsZero() || r.Received.Before(first)) {
			first = r.Received
		}
	}
	return first
}

// ends returns when each PersistentVolume lost its finalizer, in their order.
func ends(all []audit.Request, p provisioner) []time.Time { return successes(all, p, "patch") }
