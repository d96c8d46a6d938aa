package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// large is a cluster of many nodes and volumes.
func (e *environment) large(ctx context.Context, s scale, t *table) error {
	// Nobody measures while the controller-manager still looks at what it has just heard of.
	if err := errors.Join(e.addNodes(ctx, 3, s.nodes), e.addBound(ctx, s.volumes), e.audit.Skip()); err != nil {
		return err
	}
	if _, err := e.quiet(ctx, provisioner{name: "kube-controller-manager"}); err != nil {
		return err
	}
	var rates, rested, worked [2][]float64
	for round := range s.rounds {
		for i, p := range e.inTurn(round) {
			bytes, err := e.rest(ctx, p, 30*time.Second)
			if err != nil {
				return err
			}
			got, err := e.burst(ctx, p, s.claims, waitForConsumer, false, unlimited...)
			if err != nil {
				return err
			}
			rates[i], rested[i], worked[i] = append(rates[i], got.rate), append(rested[i], mib(bytes)), append(worked[i], mib(got.rss))
		}
	}
	t.rounds(fmt.Sprintf("claims a second, %d at once, %d nodes and %d PVs, WaitForFirstConsumer", s.claims, s.nodes, s.volumes), rates, "/s", atLeast(5))
	what := fmt.Sprintf("RSS with %d PVs and claims and %d nodes", s.volumes, s.nodes)
	t.rounds(what+fmt.Sprintf(", having made %d more", s.claims), worked, " MiB", atMost(1./3))
	t.rounds(what+", 30 s after the start", rested, " MiB", atMost(1./3))
	return nil
}

// rest returns the resident memory of a provisioner that has nothing to do, some time after its start.
func (e *environment) rest(ctx context.Context, p provisioner, after time.Duration) (int64, error) {
	proc, err := e.start(p, unlimited...)
	if err != nil {
		return 0, err
	}
	defer e.StopProgram(proc, false)
	if err := sleepFor(ctx, after); err != nil {
		return 0, err
	}
	return memoryOf(proc, "VmRSS")
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }
