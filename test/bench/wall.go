package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/ecssim"
)

// wall measures what needs a real clock, sockets, and processes of their own
// for the client and the simulator.
func wall(t *testing.T, r *report) {
	connections(t, r)
	for _, n := range []int{1, 100, 1000} {
		onTheClock(t, r, n)
	}
	memory(t, r)
}

// connections counts those that many calls open.
func connections(t *testing.T, r *report) {
	const calls, workers = 5000, 32
	sim, err := newSimulator(func(c *ecssim.Config) { c.Latency, c.ForgiveUnknownDisk = ecssim.Latency{}, true })
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: sim, ConnContext: sim.Connected, ReadHeaderTimeout: time.Minute}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	defer server.Close() //nolint:errcheck // the process ends soon
	client, err := newClient("http://"+listener.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var all errgroup.Group
	all.SetLimit(workers)
	for i := range calls {
		all.Go(func() error { return client.Delete(context.Background(), disk.ID(fmt.Sprintf("d-bench%d", i))) })
	}
	if err := all.Wait(); err != nil {
		t.Error(err)
	}
	if n := sim.Count("DeleteDisk", ""); n != calls {
		t.Errorf("%d calls arrived", n)
	}
	r.add(figure{"connections opened for 5 000 calls, 32 in flight", float64(sim.Stats().Connections), "", 64, "SDK default 156 for 640"})
}

// onTheClock runs lifecycles in real time, the simulator in a process of its own.
func onTheClock(t *testing.T, r *report, n int) {
	sim := startSimulator(t, simulatorSettings{Latency: "real", Throttle: "generous"})
	defer sim.stop()
	got := runClient(t, clientSettings{Role: roleLifecycles, Endpoint: sim.address, N: n})
	sum := countCalls(sim.state(t).Calls)
	queues := ecssim.Parallel
	r.runs = append(r.runs, runRow(n, "wall", "generous", queues, sum, got.Took, got.Later))
	fmt.Println(r.runs[len(r.runs)-1])
	if got.Failed > 0 {
		t.Errorf("%d operations failed: %v", got.Failed, got.Errors)
	}
	if n != 1000 {
		return
	}
	r.notes = append(r.notes,
		"On the wall clock, client and simulator run in separate processes that communicate over HTTP on loopback, with profile `real`, without spread, and 6 000 calls a minute and action.",
		fmt.Sprintf("The client's process used %.1f s of CPU for %d lifecycles, %.0f µs a call (SDK, signing, JSON, HTTP).",
			got.CPU.Seconds(), n, got.CPU.Seconds()*1e6/float64(sum.calls)))
	r.cpu = cpuTable(t, got.Profile, sum.calls, got.CPU)
}

// memory measures the client's process with ten thousand disks that it has
// made, and a thousand of them being attached.
func memory(t *testing.T, r *report) {
	sim := startSimulator(t, simulatorSettings{Latency: "fast", Throttle: "off", Stuck: "AttachDisk"})
	defer sim.stop()
	got := runClient(t, clientSettings{Role: roleMemory, Endpoint: sim.address, N: 10000})
	if got.Failed > 0 {
		t.Errorf("%d operations failed: %v", got.Failed, got.Errors)
	}
	r.add(figure{"RSS at its peak, 10 000 known volumes, 1 000 attaches in flight", float64(got.PeakRSS) / (1 << 20), "MiB", 100, "the client's process, without the simulator"})
	r.notes = append(r.notes, fmt.Sprintf("RSS is the peak (VmHWM) of a process with only the client, which creates 10 000 disks and then has 1 000 attaches in flight. With all of them in flight it was %d MiB.", got.RSS>>20))
}
