package diskdriver

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/internal/sleep"
)

// How often ECS is asked whether it answers, and how long one answer may take.
const (
	recheckWhenReady = 60 * time.Second
	recheckWhenNot   = 5 * time.Second
	checkTimeout     = 20 * time.Second
)

// readiness keeps the last answer to: do the credentials and ECS work?
type readiness struct {
	cloud  Cloud
	ready  prometheus.Gauge
	good   atomic.Bool
	notify func(error) // hears of news; may be nil
	cause  string      // of the last answer
}

// ok returns the last answer, false before the first.
func (r *readiness) ok() bool { return r.good.Load() }

// watch asks at once and then again and again, until the context ends.
func (r *readiness) watch(ctx context.Context) {
	for known := false; ; known = true {
		pause := recheckWhenNot
		if r.check(ctx, known) {
			pause = recheckWhenReady
		}
		if sleep.For(ctx, pause) != nil {
			return
		}
	}
}

// cause tells one failure from another by what does not change from call to
// call: not by IDs, times and ports. It is empty for success.
func cause(err error) string {
	var refusal interface{ Code() string } // ECS has answered
	switch kind := disk.KindOf(err); {
	case err == nil:
		return ""
	case errors.As(err, &refusal):
		return refusal.Code()
	case kind == disk.Unauthenticated: // the text says which file, or who else was asked for keys
		return err.Error()
	default:
		return kind.String()
	}
}

// check asks once, and logs an answer that is news. A question that ends with the process says nothing of ECS.
func (r *readiness) check(ctx context.Context, known bool) bool {
	asking, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err := r.cloud.Check(asking)
	if ctx.Err() != nil {
		return false
	}
	if disk.KindOf(err) == disk.Throttled && r.ok() { // ECS answers, and says nothing of the keys
		return true
	}
	good, why := err == nil, cause(err)
	news := r.good.Swap(good) != good || why != r.cause || !known
	r.cause = why
	switch {
	case good:
		r.ready.Set(1)
		if news {
			klog.InfoS("ECS answers; the driver is ready")
		}
	default:
		r.ready.Set(0)
		if news {
			klog.ErrorS(err, "ECS does not answer; the driver is not ready")
		}
	}
	if news && r.notify != nil {
		r.notify(err)
	}
	return good
}
