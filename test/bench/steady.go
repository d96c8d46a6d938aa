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

// steadyRate are claims that come to both provisioners at an even rate.
type steadyRate struct {
	qps       int     // of each provisioner
	perSecond int     // claims of both together
	claims    int     // of each provisioner in a round
	most      float64 // the ratio of their waits
	part      float64 // of the machine's CPU time, which the control plane has meanwhile
	where     string  // what the rows' names end in
}

// steady are claims that come at an even rate, on a control plane that has all of the machine's CPU time.
func (e *environment) steady(ctx context.Context, s scale, t *table) error {
	return e.measureRates(ctx, s, t, []steadyRate{{20, 20, 200, 1. / 3, 1, ""}, {1000, 50, 500, 1, 1, ""}})
}

// half are the same on a control plane that has half of the machine's CPU time.
func (e *environment) half(ctx context.Context, s scale, t *table) error {
	return e.measureRates(ctx, s, t, []steadyRate{{1000, 25, 500, 1, .5, ", control plane slowed to a half"}})
}

// tenth are the same with a tenth.
func (e *environment) tenth(ctx context.Context, s scale, t *table) error {
	return e.measureRates(ctx, s, t, []steadyRate{{1000, 5, 500, 1, .1, ", control plane slowed to a tenth"}})
}

// measureRates adds two rows for each of the rates.
func (e *environment) measureRates(ctx context.Context, s scale, t *table, rates []steadyRate) error {
	for _, rate := range rates {
		var halves, most [2][]float64
		for round := range s.runs { // a p99 of a few hundred claims is a few of them: one hiccup of the machine must not decide
			times, err := e.steadyRound(ctx, round, rate)
			if err != nil {
				return err
			}
			for i, waits := range times {
				halves[i], most[i] = append(halves[i], waits[len(waits)/2]), append(most[i], waits[len(waits)*99/100])
			}
		}
		what := fmt.Sprintf("from claim ready to PV saved, QPS %d each, %d claims a second of both together%s", rate.qps, rate.perSecond, rate.where)
		t.rounds("p50 "+what, halves, " ms", atMost(rate.most))
		t.rounds("p99 "+what, most, " ms", atMost(rate.most))
	}
	return nil
}

// steadyRound runs both provisioners at the same time, each with a driver of its own, and makes claims for each, alternately: the
// machine is not as fast in one second as in the next. It returns how long the claims of each were ready and had no volume, in
// milliseconds and in order. A claim is ready when the controller-manager has assigned its provisioner.
func (e *environment) steadyRound(ctx context.Context, round int, rate steadyRate) (times [2][]float64, err error) {
	var classes [2]string
	var programs [2]*process.Process
	for i, driver := range []string{benchDriver, upstreamDriver} {
		if classes[i], err = e.addClassOf(ctx, driver, waitForConsumer); err != nil {
			return times, err
		}
		if programs[i], err = e.start(e.both()[i], append(limited(rate.qps), "--csi-address="+socketIn(e.Dir, driver))...); err != nil {
			return times, err
		}
		defer e.StopProgram(programs[i], false)
	}
	all, err := e.steadyClaims(ctx, classes, round, rate)
	if err != nil {
		return times, err
	}
	for i, class := range classes {
		e.StopProgram(programs[i], false)
		volumes, err := e.volumesOf(ctx, class)
		if err != nil {
			return times, err
		}
		if times[i] = claimWaits(all, volumes); len(times[i]) < rate.claims {
			return times, fmt.Errorf("%s: the audit log has the requests of %d of %d claims", e.both()[i].name, len(times[i]), rate.claims)
		}
	}
	return times, errors.Join(e.clear(ctx, classes[0]), e.clear(ctx, classes[1]))
}

// steadyClaims makes the claims of a round, and returns all requests until they have volumes.
func (e *environment) steadyClaims(ctx context.Context, classes [2]string, round int, rate steadyRate) (all []audit.Request, err error) {
	if rate.part < 1 {
		restore, limitErr := limitCPU(e.Plane, rate.part)
		if limitErr != nil {
			return nil, limitErr
		}
		defer func() { err = errors.Join(err, restore()) }()
	}
	if err := errors.Join(sleepFor(ctx, 3*time.Second), e.audit.Skip(), e.addClaimsAlternately(ctx, classes, round, rate.claims, rate.perSecond)); err != nil {
		return nil, err
	}
	return e.collect(ctx, func(all []audit.Request) bool {
		return len(saves(all, e.ours))+len(saves(all, e.upstream)) >= 2*rate.claims
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
