package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/topodisk/topodisk/test/lab/audit"
)

// fewestClaims is how many claims a p99 is taken of at least.
const fewestClaims = 100

// steady are claims that come at an even rate, on a control plane that has all of the machine's CPU time or a part of it.
func (e *environment) steady(ctx context.Context, s scale, t *table) error {
	for _, c := range []struct {
		qps, perSecond int
		part           float64 // of the machine's CPU time
		most           float64
		what           string
	}{
		{20, 10, 1, 1. / 3, ""},
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
		for round := range s.runs { // a p99 of few hundred claims is two of them: one hiccup of the machine must not decide
			for i, who := range e.inTurn(round) {
				p50, p99, err := e.waits(ctx, who, max(fewestClaims, c.perSecond*s.seconds), c.perSecond, limited(c.qps)...)
				if err != nil {
					return errors.Join(err, restore())
				}
				halves[i], most[i] = append(halves[i], p50), append(most[i], p99)
			}
		}
		if err := restore(); err != nil {
			return err
		}
		what := fmt.Sprintf("from claim ready to PV saved, QPS %d, %d claims a second%s", c.qps, c.perSecond, c.what)
		t.rounds("p50 "+what, halves, " ms", atMost(c.most))
		t.rounds("p99 "+what, most, " ms", atMost(c.most))
	}
	return nil
}

// waits returns the p50 and p99 of the time for which claims were ready and had no volume, in milliseconds. A claim is
// ready when the controller-manager has assigned its provisioner.
func (e *environment) waits(ctx context.Context, p provisioner, n, perSecond int, args ...string) (p50, p99 float64, err error) {
	class, err := e.addClass(ctx, waitForConsumer)
	if err != nil {
		return 0, 0, err
	}
	proc, err := e.start(p, args...)
	if err != nil {
		return 0, 0, err
	}
	defer e.StopProgram(proc, false)
	if err := errors.Join(sleepFor(ctx, 3*time.Second), e.audit.Skip(), e.addClaimsAtRate(ctx, class, n, perSecond)); err != nil {
		return 0, 0, err
	}
	all, err := e.collect(ctx, func(all []audit.Request) bool { return len(saves(all, p)) >= n })
	if err != nil {
		return 0, 0, err
	}
	volumes, err := e.volumesOf(ctx, class)
	if err != nil {
		return 0, 0, err
	}
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
	if len(times) < n {
		return 0, 0, fmt.Errorf("%s: the audit log has the requests of %d of %d claims", p.name, len(times), n)
	}
	slices.Sort(times)
	return times[len(times)/2], times[len(times)*99/100], e.clear(ctx, class)
}
