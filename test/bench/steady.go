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

// steadyRate are the claims a second of both provisioners together.
const steadyRate = 50

// steady are claims that come at an even rate, with drivers that take ECS's time.
func (e *environment) steady(ctx context.Context, s scale, t *table) error {
	var halves, most [2][]float64
	for round := range s.runs { // a p99 of a few hundred claims is a few of them: one hiccup of the machine must not decide
		times, err := e.steadyRound(ctx, round, s.steady)
		if err != nil {
			return err
		}
		for i, waits := range times {
			halves[i], most[i] = append(halves[i], waits[len(waits)/2]), append(most[i], waits[len(waits)*99/100])
		}
	}
	what := fmt.Sprintf("from claim ready to PV saved, %d claims a second of both together, the driver takes %s", steadyRate, ecsTime)
	t.differences("p50 "+what, halves, " ms", 20)
	t.differences("p99 "+what, most, " ms", 20)
	return nil
}

// steadyRound runs both provisioners at the same time, each with a driver of its own, and makes claims for each, alternately: the
// machine is not as fast in one second as in the next. It returns how long the claims of each were ready and had no volume, in
// milliseconds and in order. A claim is ready when the controller-manager has assigned its provisioner.
func (e *environment) steadyRound(ctx context.Context, round, claims int) (times [2][]float64, err error) {
	var classes [2]string
	var programs [2]*process.Process
	for i, driver := range []string{ecsDriver, upstreamECSDriver} {
		if classes[i], err = e.addClassOf(ctx, driver, waitForConsumer); err != nil {
			return times, err
		}
		if programs[i], err = e.start(e.both()[i], append([]string{"--csi-address=" + socketIn(e.Dir, driver)}, unlimited...)...); err != nil {
			return times, err
		}
		defer e.StopProgram(programs[i], false)
	}
	all, err := e.steadyClaims(ctx, classes, round, claims)
	if err != nil {
		return times, err
	}
	for i, class := range classes {
		e.StopProgram(programs[i], false)
		volumes, err := e.volumesOf(ctx, class)
		if err != nil {
			return times, err
		}
		if times[i] = claimWaits(all, volumes); len(times[i]) < claims {
			return times, fmt.Errorf("%s: the audit log has the requests of %d of %d claims", e.both()[i].name, len(times[i]), claims)
		}
	}
	return times, errors.Join(e.clear(ctx, classes[0]), e.clear(ctx, classes[1]))
}

// steadyClaims makes the claims of a round, and returns all requests until they have volumes.
func (e *environment) steadyClaims(ctx context.Context, classes [2]string, round, claims int) ([]audit.Request, error) {
	if err := errors.Join(sleepFor(ctx, 3*time.Second), e.audit.Skip(), e.addClaimsAlternately(ctx, classes, round, claims, steadyRate)); err != nil {
		return nil, err
	}
	return e.collect(ctx, func(all []audit.Request) bool {
		return len(saves(all, e.ours))+len(saves(all, e.upstream)) >= 2*claims
	})
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
