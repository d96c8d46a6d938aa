package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/test/lab/audit"
	"github.com/topodisk/topodisk/test/lab/process"
)

// takeovers are the ways in which a leader goes.
func (e *environment) takeovers(ctx context.Context, s scale, t *table) error {
	for _, how := range []struct {
		name string
		kill bool
		most float64
	}{{"SIGTERM", false, 2}, {"kill -9", true, 20}} {
		var took [2][]float64
		for round := range s.rounds {
			for i, p := range e.inTurn(round) {
				seconds, err := e.takeover(ctx, p, how.kill)
				if err != nil {
					return err
				}
				took[i] = append(took[i], seconds)
			}
		}
		t.bound("takeover after "+how.name+", to the next PV saved, default lease", median(took[0]), median(took[1]), " s", how.most)
	}
	return nil
}

// takeover returns the seconds from a leader's end to the first volume that the other one saves.
func (e *environment) takeover(ctx context.Context, p provisioner, kill bool) (float64, error) {
	class, err := e.addClass(ctx, waitForConsumer)
	if err != nil {
		return 0, err
	}
	var both []*process.Process
	for i := range 2 {
		proc, err := e.startOn(fmt.Sprintf("host-%d", i), p, append([]string{"--leader-election=true"}, unlimited...)...)
		if err != nil {
			return 0, err
		}
		defer func() { e.StopProgram(proc, true) }()
		both = append(both, proc)
		if err := sleepFor(ctx, 8*time.Second); err != nil { // the first one leads, then the second is ready to
			return 0, err
		}
	}
	if err := e.audit.Skip(); err != nil {
		return 0, err
	}
	gone := time.Now()
	e.StopProgram(both[0], kill)
	if err := e.addClaims(ctx, class, 1, waitForConsumer); err != nil {
		return 0, err
	}
	all, err := e.collect(ctx, func(all []audit.Request) bool { return len(saves(all, p)) == 1 })
	if err != nil {
		return 0, err
	}
	e.StopProgram(both[1], true)
	// Nobody is to wait for this lease in the next run.
	name := request.ObjectName(benchDriver)
	if err := ignoreMissing(e.Client.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(ctx, name, metav1.DeleteOptions{})); err != nil {
		return 0, err
	}
	return saves(all, p)[0].Sub(gone).Seconds(), e.clear(ctx, class)
}
