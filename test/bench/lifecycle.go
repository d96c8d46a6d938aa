package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/drivertest"
	"github.com/topodisk/topodisk/test/lab/simulator"
)

// lifecycleRounds is how many times each driver runs each scenario, on a fresh simulator each; medians are reported.
const lifecycleRounds = 3

// A scenario is n lifecycles at once on so many instances: create, publish, expand, unpublish and delete one volume, over
// gRPC on the driver's socket, as the sidecars call it.
type scenario struct {
	key       string // names it on the command line
	name      string
	n         int
	instances int
	queues    string
	latency   func(round int) ecssim.LatencyForm
	warm      int    // lifecycles that the driver has run before, one at a time
	throttle  string // the simulator's limits of calls; empty for none

	calls   float64 // a lifecycle, at most
	wall    float64 // seconds at most; 0: a multiple of the limit
	ofLimit float64 // at most
	lost    float64 // seconds at most that a handover costs; 0: there is none
}

// What a crowd may cost whose calls are throttled: in percent of the calls, in connections to ECS for each request of the most that were under
// way together, and in MiB of the driver's process at its peak.
const mostThrottled, mostConnections, mostMemory = 1, 1.1, 100

// atOnce is what most of the scenarios run on: ten instances, ten volumes each.
const atOnceN, atOnceInstances = 100, 10

// scenarios are the rows of the table. Of the calls of a lifecycle one writes the tag that says that the disk is in use, before its first
// attach. Those that see that a new disk is available, and what size it has after an expansion, are to be shared.
var scenarios = []scenario{
	{key: "fast-1", name: "fast, 1, cold process", n: 1, instances: 1, queues: "serial", latency: fixed("fast"), calls: 12, wall: 0.6},
	{key: "fast-100", name: "fast, 100 on 10 instances, serial", n: atOnceN, instances: atOnceInstances, queues: "serial",
		latency: fixed("fast"), calls: 7, wall: 4},
	{key: "real-1-cold", name: "real without spread, 1, cold", n: 1, instances: 1, queues: "serial", latency: fixed("real"), calls: 26, ofLimit: 1.12},
	{key: "real-1-warm", name: "real without spread, 1, warm", n: 1, instances: 1, queues: "serial", latency: fixed("real"), warm: 2, calls: 16, ofLimit: 1.10},
	{key: "real-100-serial", name: "real without spread, 100, serial", n: atOnceN, instances: atOnceInstances, queues: "serial",
		latency: fixed("real"), calls: 7.5, ofLimit: 1.12},
	{key: "real-100-parallel", name: "real without spread, 100, parallel", n: atOnceN, instances: atOnceInstances, queues: "parallel",
		latency: fixed("real"), calls: 6.5, ofLimit: 1.15},
	{key: "drawn-1", name: "asynchronous medians drawn from 0.1 to 10 s, spread 0.5: 1, cold", n: 1, instances: 1, queues: "serial", latency: drawn, calls: 30, ofLimit: 1.20},
	{key: "drawn-100", name: "asynchronous medians drawn from 0.1 to 10 s, spread 0.5: 100, serial", n: atOnceN, instances: atOnceInstances, queues: "serial", latency: drawn, calls: 7.5, ofLimit: 1.15},
	{key: "handover", name: "real without spread, 100, serial: handover to a long-running standby halfway", n: atOnceN, instances: atOnceInstances, queues: "serial", latency: fixed("real"), lost: 15},
	{key: "crowd", name: "real without spread, 1 000 on 100 instances, parallel, 600 calls a minute and action", n: 1000, instances: instances, queues: "parallel",
		latency: fixed("real"), throttle: "default"},
}

// fixed are the latencies of a profile, the same every time.
func fixed(profile string) func(int) ecssim.LatencyForm {
	return func(int) ecssim.LatencyForm {
		spread := 0.0
		return ecssim.LatencyForm{Profile: profile, Spread: &spread}
	}
}

// drawn are those of profile real, but for what ECS does after it has answered: the median of each is drawn anew in every
// round, evenly by its logarithm, and each time it varies about that.
func drawn(round int) ecssim.LatencyForm {
	random := rand.New(rand.NewPCG(uint64(round), 0))
	spread, spans := 0.5, map[string]string{}
	for _, name := range []string{"Available", "Attach", "Detach"} {
		median := math.Exp(math.Log(0.1) + random.Float64()*math.Log(100))
		spans[name] = time.Duration(median * float64(time.Second)).Round(time.Millisecond).String()
	}
	spans["Initializing"] = "0s"
	return ecssim.LatencyForm{Profile: "real", Spans: spans, Spread: &spread}
}

// outcome is what one run of a scenario came to.
type outcome struct {
	calls      float64 // of ECS, a lifecycle
	wall       float64 // seconds
	limit      float64 // seconds
	operations map[string][]time.Duration
	later      int     // answers to come back later
	lost       float64 // seconds longer than without the handover
	wrong      int     // answers OK that were not so in ECS

	throttled, connections, memory float64 // as in mostThrottled, ...
}

// run runs a scenario once with one driver.
func (s scenario) run(ctx context.Context, programs string, d csiDriver, round int) (o outcome, err error) {
	r, end, err := startReplicas(ctx, programs, s.queues, s.instances, "--throttle="+cmp.Or(s.throttle, "off"))
	if err != nil {
		return o, err
	}
	defer func() { err = end(err) }()
	if err := r.Simulator.SetLatency(ctx, s.latency(round)); err != nil {
		return o, err
	}
	caller, err := d.start(ctx, r)
	if err != nil {
		return o, err
	}
	defer caller.close()
	if s.lost > 0 {
		return s.handOver(ctx, r, d, caller)
	}
	for i := range s.warm {
		if err := caller.lifecycle(ctx, fmt.Sprintf("warm-%d", i), instance(i%s.instances)); err != nil {
			return o, err
		}
	}
	if s.throttle == "" {
		return s.measure(ctx, r.Simulator, caller, "pvc")
	}
	return s.crowd(ctx, r, d, caller)
}

// crowd is measure, with what the crowd cost the account and the driver's process.
func (s scenario) crowd(ctx context.Context, r *simulator.Replicas, d csiDriver, caller *caller) (o outcome, err error) {
	caller.longestPause = accountPause
	if o, err = s.measure(ctx, r.Simulator, caller, "pvc"); err != nil {
		return o, err
	}
	stats, err := r.Simulator.Stats(ctx)
	if err != nil {
		return o, err
	}
	o.throttled, o.connections = 100*float64(stats.Throttled)/float64(stats.Calls), float64(stats.Connections)/float64(stats.MostAtOnce)
	bytes, err := memoryOf(r.Driver(d.name), "VmHWM")
	o.memory = float64(bytes) / (1 << 20)
	return o, err
}

// handOver runs the lifecycles twice: by one driver, and again with that driver killed halfway and another one going
// on, which has stood by since the beginning. The outcome is that of the second time.
func (s scenario) handOver(ctx context.Context, r *simulator.Replicas, d csiDriver, caller *caller) (o outcome, err error) {
	standBy := d
	standBy.name += "-stand-by"
	next, err := standBy.start(ctx, r)
	if err != nil {
		return o, err
	}
	defer next.close()
	caller.truth = r.Simulator
	before, err := s.measure(ctx, r.Simulator, caller, "before")
	if err != nil {
		return o, err
	}
	killed := make(chan error, 1)
	halfway := time.AfterFunc(time.Duration(before.wall/2*float64(time.Second)), func() {
		err := r.EndDriver(d.name, syscall.SIGKILL)
		caller.turnTo(next)
		killed <- err
	})
	defer halfway.Stop()
	if o, err = s.measure(ctx, r.Simulator, caller, "pvc"); err != nil {
		return o, err
	}
	o.lost, o.wrong = o.wall-before.wall, before.wrong+o.wrong
	return o, <-killed
}

// measure runs the lifecycles and adds up what the simulator has seen of them.
func (s scenario) measure(ctx context.Context, sim *simulator.Client, caller *caller, names string) (o outcome, err error) {
	before, err := sim.Calls(ctx, "")
	if err != nil {
		return o, err
	}
	began, err := sim.State(ctx)
	if err != nil {
		return o, err
	}
	caller.reset()
	start := time.Now()
	var lifecycles errgroup.Group
	for i := range s.n {
		lifecycles.Go(func() error { return caller.lifecycle(ctx, fmt.Sprintf("%s-%d", names, i), instance(i%s.instances)) })
	}
	err = lifecycles.Wait()
	o.wall = time.Since(start).Seconds()
	if err != nil {
		return o, err
	}
	calls, err := sim.Calls(ctx, "")
	if err != nil {
		return o, err
	}
	calls = calls[len(before):]
	state, err := sim.State(ctx)
	if err != nil {
		return o, err
	}
	made, deleted := state.DisksMade-began.DisksMade, state.DisksDeleted-began.DisksDeleted
	if state.Broken != "" || made != s.n || deleted != s.n {
		return o, fmt.Errorf("%d disks were made and %d deleted, want %d: %s", made, deleted, s.n, state.Broken)
	}
	o.calls = float64(len(calls)) / float64(s.n)
	o.limit = drivertest.LifecycleLimit(calls, s.queues == "serial").Seconds()
	o.operations, o.later, o.wrong = caller.took, caller.later, len(caller.wrong)
	for _, text := range caller.wrong {
		fmt.Println(text)
	}
	return o, nil
}

// benchLifecycle runs the scenarios that are named, all of them for none, and writes the page's section.
func benchLifecycle(ctx context.Context, names, programs, other, page string) error {
	drivers := []csiDriver{{name: "topodisk"}}
	if other != "" {
		words := strings.Fields(other)
		path, err := filepath.Abs(words[0])
		if err != nil {
			return err
		}
		drivers = append(drivers, csiDriver{name: filepath.Base(path), path: path, args: words[1:]})
	}
	programs, err := filepath.Abs(programs)
	if err != nil {
		return err
	}
	chosen, err := chooseRows(names, scenarios, scenario.named)
	if err != nil {
		return err
	}
	var rows []lifecycleRow
	for _, s := range chosen {
		results := make([][]outcome, len(drivers))
		for round := range lifecycleRounds {
			for i, d := range drivers { // in turn, for the machine is not as fast at one time as at another
				o, err := s.run(ctx, programs, d, round)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", s.name, d.name, err)
				}
				results[i] = append(results[i], o)
			}
		}
		for i, d := range drivers {
			row := newLifecycleRow(s, d, results[i])
			row.print(len(rows) == 0)
			rows = append(rows, row)
		}
	}
	if page == "" || len(chosen) < len(scenarios) {
		return nil
	}
	return writeSection(page, "lifecycle", lifecyclePage(rows))
}

func (s scenario) named() string { return s.key }
