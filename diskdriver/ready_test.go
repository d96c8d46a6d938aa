package diskdriver

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// cloud answers Check with an error, or nil, and counts.
type cloud struct {
	mu     sync.Mutex
	err    error
	checks int
}

func (c *cloud) Check(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checks++
	return c.err
}

func (c *cloud) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

func (c *cloud) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.checks
}

func TestProbeAnswersFromTheLastCheckAndIsNeverAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cloud{err: errors.New("SignatureDoesNotMatch")}
		d, registry := newDriver(t, &slow{}, c)
		ready := func() bool {
			r, err := d.identity.Probe(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return r.GetReady().GetValue()
		}
		if ready() || c.count() != 0 {
			t.Errorf("ready before the first check, or %d checks by Probe", c.count())
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { d.readiness.watch(ctx); close(done) }()
		synctest.Wait()
		if ready() {
			t.Error("ready while ECS refuses")
		}
		c.fail(nil)
		time.Sleep(recheckWhenNot + time.Second)
		if !ready() {
			t.Error("not ready although ECS answers")
		}
		checks := c.count()
		for range 100 {
			ready()
		}
		if c.count() != checks {
			t.Error("Probe calls ECS")
		}
		if n := testutil.ToFloat64(d.readiness.ready); n != 1 {
			t.Errorf("topodisk_ready is %g", n)
		}
		c.fail(errors.New("no route"))
		time.Sleep(recheckWhenReady)
		if ready() {
			t.Error("ready although ECS answers no more")
		}
		if n, err := testutil.GatherAndCount(registry, "topodisk_ready"); err != nil || n != 1 {
			t.Errorf("topodisk_ready is registered %d times (%v)", n, err)
		}
		stop()
		<-done
	})
}
