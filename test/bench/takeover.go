package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/test/lab"
)

// takeovers are the ways in which a leader goes.
func (a *arena) takeovers(ctx context.Context, s scale, d *duel) error {
	for _, how := range []struct {
		name string
		kill bool
		most float64
	}{{"SIGTERM", false, 2}, {"kill -9", true, 20}} {
		var took [2][]float64
		for range s.rounds {
			for i, c := range a.both() {
				seconds, err := a.takeover(ctx, c, how.kill)
				if err != nil {
					return err
				}
				took[i] = append(took[i], seconds)
			}
		}
		d.bound("takeover after "+how.name+", to the next PV saved, default lease", middle(took[0]), middle(took[1]), " s", how.most)
	}
	return nil
}

// takeover returns the seconds from a leader's end to the first volume that the other one saves.
func (a *arena) takeover(ctx context.Context, c contender, kill bool) (float64, error) {
	class, err := a.addClass(ctx, late)
	if err != nil {
		return 0, err
	}
	var both []*lab.Process
	for i := range 2 {
		process, err := a.startOn(fmt.Sprintf("host-%d", i), c, append([]string{"--leader-election=true"}, unlimited...)...)
		if err != nil {
			return 0, err
		}
		defer func() { a.StopProgram(process, true) }()
		both = append(both, process)
		if err := sleepFor(ctx, 8*time.Second); err != nil { // the first one leads, then the second is ready to
			return 0, err
		}
	}
	if err := a.audit.Skip(); err != nil {
		return 0, err
	}
	gone := time.Now()
	a.StopProgram(both[0], kill)
	if err := a.addClaims(ctx, class, 1, late); err != nil {
		return 0, err
	}
	all, err := a.collect(ctx, func(all []lab.Request) bool { return len(saves(all, c)) == 1 })
	if err != nil {
		return 0, err
	}
	a.StopProgram(both[1], true)
	// Nobody is to wait for this lease in the next run.
	name := strings.ReplaceAll(benchDriver, ".", "-")
	if err := ignoreMissing(a.Client.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(ctx, name, metav1.DeleteOptions{})); err != nil {
		return 0, err
	}
	return saves(all, c)[0].Sub(gone).Seconds(), a.clear(ctx, class)
}
