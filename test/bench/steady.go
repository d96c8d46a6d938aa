package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/test/lab/audit"
	"github.com/topodisk/topodisk/test/lab/process"
)

// fewestClaims is how many claims a p99 is taken of at least.
const fewestClaims = 200

// steady are claims that come at an even rate, on a control plane that has all of the machine's CPU time or a part of it.
func (e *environment) steady(ctx context.Context, s scale, t *table) error {
	if err := e.addDriver(ctx, upstreamDriver); err != nil {
		return err
	}
	for _, c := range []struct {
		qps       int     // of each provisioner
		perSecond int     // claims of both together
		part      float64 // of the machine's CPU time
		most      float64
		what      string
	}{
		{20, 20, 1, 1. / 3, ""},
		{1000, 50, 1, 1, ""},
		{1000, 25, .5, 1, ", control plane slowed to a half"},
		{1000, 5, .1, 1, ", control plane slowed to a tenth"},
	} {
		restore := func() error { return nil }
		if c.part < 1 {
			var err error
			if restore, err = limitCPU(e.Plane, c.part); err != nil {
				return err
			}
		}
		var halves, most [2][]float64
		for round := range s.runs { // a p99 of a few hundred claims is a few of them: one hiccup of the machine must not decide
			times, err := e.steadyRound(ctx, round, max(fewestClaims, c.perSecond*s.seconds), c.perSecond, limited(c.qps)...)
			if err != nil {
				return errors.Join(err, restore())
			}
			for i, waits := range times {
				halves[i], most[i] = append(halves[i], waits[len(waits)/2]), append(most[i], waits[len(waits)*99/100])
			}
		}
		if err := restore(); err != nil {
			return err
		}
		what := fmt.Sprintf("from claim ready to PV saved, QPS %d each, %d claims a second of both together%s", c.qps, c.perSecond, c.what)
		t.rounds("p50 "+what, halves, " ms", atMost(c.most))
		t.rounds("p99 "+what, most, " ms", atMost(c.most))
	}
	return nil
}

// steadyRound runs both provisioners at the same time, each with a driver of its own, and makes n claims for each, alternately: the
// machine is not as fast in one second as in the next. It returns how long the claims of each were ready and had no volume, in
// milliseconds and in order. A claim is ready when the controller-manager has assigned its provisioner.
func (e *environment) steadyRound(ctx context.Context, round, n, perSecond int, args ...string) (times [2][]float64, err error) {
	var classes [2]string
	var programs [2]*process.Process
	for i, driver := range []string{benchDriver, upstreamDriver} {
		if classes[i], err = e.addClassOf(ctx, driver, waitForConsumer); err != nil {
			return times, err
		}
		if programs[i], err = e.start(e.both()[i], append(args, "--csi-address="+socketIn(e.Dir, driver))...); err != nil {
			return times, err
		}
		defer e.StopProgram(programs[i], false)
	}
	if err := errors.Join(sleepFor(ctx, 3*time.Second), e.audit.Skip(), e.addClaimsAlternately(ctx, classes, round, n, perSecond)); err != nil {
		return times, err
	}
	all, err := e.collect(ctx, func(all []audit.Request) bool { return len(saves(all, e.ours))+len(saves(all, e.upstream)) >= 2*n })
	if err != nil {
		return times, err
	}
	for i, class := range classes {
		e.StopProgram(programs[i], false)
		volumes, err := e.volumesOf(ctx, class)
		if err != nil {
			return times, err
		}
		if times[i] = claimWaits(all, volumes); len(times[i]) < n {
			return times, fmt.Errorf("%s: the audit log has the requests of %d of %d claims", e.both()[i].name, len(times[i]), n)
		}
	}
	return times, errors.Join(e.clear(ctx, classes[0]), e.clear(ctx, classes[1]))
}

// claimWaits returns for how long the claims of volumes were ready and had none, in milliseconds and in order.
func claimWaits(all []audit.Request, volumes []corev1.PersistentVolume) []float64 {
	ready, saved := map[string]time.Time{}, map[string]time.Time{}
	for _, r := range all {
		switch {
		case !r.Succeeded():
		case r.Is("create", "persistentvolumes"):
			saved[r.Object.Name] = r.Answered
		case r.Program() == "kube-controller-manager" && r.Is("update", "persistentvolumeclaims") && r.Object.Subresource == "" &&
			ready[r.Object.Name].IsZero():
			ready[r.Object.Name] = r.Answered
		}
	}
	var times []float64
	for _, pv := range volumes {
		if from, to := ready[pv.Spec.ClaimRef.Name], saved[pv.Name]; !from.IsZero() && !to.IsZero() {
			times = append(times, float64(to.Sub(from).Microseconds())/1000)
		}
	}
	slices.Sort(times)
	return times
}
