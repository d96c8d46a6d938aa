package ecs

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/internal/ecstest"
	"github.com/topodisk/topodisk/ecssim"
)

func TestCallsThatWaitAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		sim := newSim(t, nil)
		c := newClient(t, Config{Transport: sim, Registerer: registry})
		if err := sim.AddFault(ecssim.Fault{Action: "DeleteDisk", Do: ecssim.FaultThrottle}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 7 {
			all.Go(func() { wantKind(t, c.Delete(ctx, "d-bp1a"), disk.Throttled) })
		}
		time.Sleep(1500 * time.Millisecond)
		if n := ecstest.Gauge(t, registry, "topodisk_ecs_throttled_calls"); n < 6 || n > 7 {
			t.Errorf("%v calls wait, want the seven but for one that probes", n)
		}
		cancel()
		all.Wait()
		if n := ecstest.Gauge(t, registry, "topodisk_ecs_throttled_calls"); n != 0 {
			t.Errorf("%v calls wait when none does", n)
		}
	})
}

// TestOneThrottledCallDelaysACrowdBySeconds is that of package ratelimit on the wire.
func TestOneThrottledCallDelaysACrowdBySeconds(t *testing.T) {
	for _, code := range []string{"Throttling", "Throttling.User", "Throttling.ConcurrentLimitExceeded"} {
		t.Run(code, func(t *testing.T) {
			var took [2]time.Duration
			for i := range took {
				synctest.Test(t, func(t *testing.T) {
					sim, c := simulate(t, slow)
					if i > 0 {
						if err := sim.AddFault(ecssim.Fault{Action: "CreateDisk", Do: ecssim.FaultThrottle, Code: code, Skip: 300, Count: 1}); err != nil {
							t.Fatal(err)
						}
					}
					began := time.Now()
					manyDisks(t, c, 1000)
					took[i] = time.Since(began)
				})
			}
			if cost := took[1] - took[0]; cost > 3*time.Second {
				t.Errorf("one refusal among 1 000 calls costs %v: %v instead of %v", cost, took[1], took[0])
			}
		})
	}
}
