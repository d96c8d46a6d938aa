package diskdriver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/topodisk/topodisk/diskdriver/disk"
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
			t.Errorf("topodisk_driver_ready is %g", n)
		}
		c.fail(errors.New("no route"))
		time.Sleep(recheckWhenReady)
		if ready() {
			t.Error("ready although ECS answers no more")
		}
		if n, err := testutil.GatherAndCount(registry, "topodisk_driver_ready"); err != nil || n != 1 {
			t.Errorf("topodisk_driver_ready is registered %d times (%v)", n, err)
		}
		stop()
		<-done
	})
}

// ECS may throttle calls before it looks at their keys, so such an answer changes nothing.
func TestAThrottledCheckLeavesReadinessAsItWas(t *testing.T) {
	throttled := &disk.Error{Op: "DescribeDisks", Kind: disk.Throttled, Err: refusal{"Throttling.User", "1"}}
	for name, before := range map[string]error{"ready": nil, "not ready": errors.New("SignatureDoesNotMatch")} {
		t.Run(name, func(t *testing.T) {
			c := &cloud{err: before}
			r := &readiness{cloud: c, ready: prometheus.NewGauge(prometheus.GaugeOpts{})}
			r.check(t.Context(), false)
			c.fail(throttled)
			if good := r.check(t.Context(), true); good != (before == nil) || r.ok() != good || testutil.ToFloat64(r.ready) == 1 != good {
				t.Errorf("after a throttled check it is ready: %v, %v", good, r.ok())
			}
		})
	}
}

// refusal is an answer of ECS, whose text is another one each time.
type refusal struct{ code, id string }

func (r refusal) Error() string { return r.code + " (request ID " + r.id + ")" }
func (r refusal) Code() string  { return r.code }

// Whoever mends what is wrong with the credentials must see what is wrong then.
func TestAnotherCauseIsNewsAndTheSameIsNot(t *testing.T) {
	unreadable := &disk.Error{Op: "DescribeDisks", Kind: disk.Unauthenticated, Err: errors.New("no file access-key-id")}
	half := &disk.Error{Op: "DescribeDisks", Kind: disk.Unauthenticated, Err: errors.New("no file access-key-secret")}
	lost := func(port string) error {
		return &disk.Error{Op: "DescribeDisks", Kind: disk.Unreachable, Err: errors.New("no answer on port " + port)}
	}
	refused := func(code, id string) error {
		return fmt.Errorf("signed with keys: %w", &disk.Error{Op: "DescribeDisks", Kind: disk.Unauthenticated, RequestID: id, Err: refusal{code, id}})
	}
	c := &cloud{}
	var told []string
	r := &readiness{cloud: c, ready: prometheus.NewGauge(prometheus.GaugeOpts{}), notify: func(err error) { told = append(told, fmt.Sprint(err)) }}
	for i, answer := range []struct {
		err  error
		news bool
	}{
		{unreadable, true}, {unreadable, false}, {half, true},
		{refused("SignatureDoesNotMatch", "1"), true}, {refused("SignatureDoesNotMatch", "2"), false}, {refused("InvalidAccessKeyId.NotFound", "3"), true},
		{lost("1"), true}, {lost("2"), false}, {nil, true}, {nil, false}, {unreadable, true},
	} {
		before := len(told)
		c.fail(answer.err)
		r.check(t.Context(), i > 0)
		if news := len(told) > before; news != answer.news {
			t.Errorf("answer %d, %v: news is %v, want %v", i, answer.err, news, answer.news)
		}
	}
}

// hanging answers Check when its context ends.
type hanging struct{}

func (hanging) Check(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestAProcessThatEndsSaysNothingOfECS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []error
		r := &readiness{cloud: hanging{}, ready: prometheus.NewGauge(prometheus.GaugeOpts{}), notify: func(err error) { told = append(told, err) }}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { r.watch(ctx); close(done) }()
		time.Sleep(checkTimeout / 2)
		stop()
		<-done
		if len(told) > 0 {
			t.Errorf("told %v at its end", told)
		}
		r.check(t.Context(), false)
		if len(told) != 1 || !errors.Is(told[0], context.DeadlineExceeded) {
			t.Errorf("told %v of an ECS that hangs, want its timeout", told)
		}
	})
}
