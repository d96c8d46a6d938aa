package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/test/lab/audit"
)

// fewClaims are the claims of the namespace beside which another one has very many.
const fewClaims = 10

// namespaces are a few claims of one namespace, alone and beside very many of another, with a driver that takes ECS's time.
func (e *environment) namespaces(ctx context.Context, s scale, t *table) error {
	var multiples [2][]float64
	var memory [2]float64
	for i, p := range e.both() {
		for range s.rounds {
			alone, _, err := e.timeFew(ctx, p, 0)
			if err != nil {
				return err
			}
			beside, rss, err := e.timeFew(ctx, p, s.crowd)
			if err != nil {
				return err
			}
			fmt.Printf("  (%s: %.2f s alone, %.2f s beside %d)\n", p.name, alone.Seconds(), beside.Seconds(), s.crowd)
			multiples[i], memory[i] = append(multiples[i], beside.Seconds()/alone.Seconds()), mib(rss)
		}
	}
	what := fmt.Sprintf("%d claims of one namespace beside %d of another, the driver takes %s", fewClaims, s.crowd, ecsTime)
	t.bound("time until all have a PV, as a multiple of that alone, "+what, median(multiples[0]), median(multiples[1]), " times", 2)
	t.beside("RSS meanwhile, "+what, memory[0], memory[1], " MiB")
	return nil
}

// timeFew returns how long a few claims of one namespace take until all have a volume, while another namespace has a crowd of them, and the
// provisioner's memory in bytes when they do.
func (e *environment) timeFew(ctx context.Context, p provisioner, crowd int) (took time.Duration, rss int64, err error) {
	few, err := e.addClassOf(ctx, ecsDriver, waitForConsumer)
	if err != nil {
		return 0, 0, err
	}
	many, err := e.addClassOf(ctx, ecsDriver, waitForConsumer)
	if err != nil {
		return 0, 0, err
	}
	if err := errors.Join(e.addClaims(ctx, many, crowd, waitForConsumer), e.audit.Skip()); err != nil {
		return 0, 0, err
	}
	proc, err := e.start(p, append([]string{"--csi-address=" + socketIn(e.Dir, ecsDriver)}, unlimited...)...)
	if err != nil {
		return 0, 0, err
	}
	defer e.StopProgram(proc, false)
	if _, err := e.collect(ctx, func(all []audit.Request) bool { return len(saves(all, p)) >= crowd/20 }); err != nil {
		return 0, 0, err
	}
	if err := sleepFor(ctx, 3*time.Second); err != nil { // without a crowd nothing says that it leads
		return 0, 0, err
	}
	begin := time.Now()
	claims, err := e.addClaimsIn(ctx, otherNamespace, few, fewClaims, waitForConsumer)
	if err != nil {
		return 0, 0, err
	}
	var last time.Time
	if _, err := e.collect(ctx, func(all []audit.Request) (done bool) { last, done = savedAll(all, p, claims); return done }); err != nil {
		return 0, 0, err
	}
	if rss, err = memoryOf(proc, "VmRSS"); err != nil {
		return 0, 0, err
	}
	e.StopProgram(proc, false)
	return last.Sub(begin), rss, errors.Join(e.clear(ctx, few), e.clear(ctx, many))
}

// savedAll returns when the last of the claims' volumes was saved, and whether all are. The name of each ends in the claim's UID.
func savedAll(all []audit.Request, p provisioner, claims []*corev1.PersistentVolumeClaim) (last time.Time, done bool) {
	left := map[string]bool{}
	for _, claim := range claims {
		left[string(claim.UID)] = true
	}
	for _, r := range all {
		if r.Program() != p.name || !r.Is("create", "persistentvolumes") || !r.Succeeded() {
			continue
		}
		if _, uid, _ := strings.Cut(r.Object.Name, "-"); left[uid] {
			delete(left, uid)
			if r.Answered.After(last) {
				last = r.Answered
			}
		}
	}
	return last, len(left) == 0
}
