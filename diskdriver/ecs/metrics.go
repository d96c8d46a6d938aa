package ecs

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/instancequeue"
)

// metrics counts the calls. Actions and Kinds are closed sets, and so are the
// labels.
type metrics struct {
	requests     *prometheus.CounterVec
	duration     *prometheus.HistogramVec
	throttleWait *prometheus.HistogramVec
	batchDisks   prometheus.Histogram
	operations   *prometheus.GaugeVec
	waits        *waits
	pending      prometheus.GaugeFunc
	oldest       prometheus.GaugeFunc
}

func newMetrics() *metrics {
	waits := newWaits()
	return &metrics{
		waits: waits,
		operations: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "topodisk_ecs_instance_operations",
			Help: "Attach and detach operations of all instances by state: waiting for their turn at the instance, or running.",
		}, []string{"operation", "state"}),
		pending: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "topodisk_ecs_pending_changes",
			Help: "Operations that wait for ECS to finish changing a disk.",
		}, func() float64 { n, _ := waits.now(); return float64(n) }),
		oldest: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "topodisk_ecs_oldest_pending_change_seconds",
			Help: "Age of the operation that has waited longest for ECS to finish changing a disk; 0 if none waits.",
		}, func() float64 { _, oldest := waits.now(); return oldest.Seconds() }),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "topodisk_ecs_requests_total",
			Help: "Calls to ECS by action and result: ok, or the kind of error.",
		}, []string{"action", "result"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "topodisk_ecs_request_duration_seconds",
			Help:    "Time from sending a call to ECS until its answer was read.",
			Buckets: []float64{.025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 40},
		}, []string{"action"}),
		throttleWait: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "topodisk_ecs_throttle_wait_seconds",
			Help:    "Time that calls were delayed because ECS throttles their action.",
			Buckets: []float64{.1, 1, 5, 15, 30, 60, 120},
		}, []string{"action"}),
		batchDisks: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "topodisk_ecs_read_batch_disks",
			Help:    "Disks that one shared DescribeDisks asks for.",
			Buckets: []float64{1, 2, 5, 10, 20, 50, 80, 100},
		}),
	}
}

func (m *metrics) register(r prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{m.requests, m.duration, m.throttleWait, m.batchDisks, m.operations, m.pending, m.oldest} {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

func (m *metrics) observe(a action, err error, took time.Duration) {
	m.requests.WithLabelValues(a.name, resultOf(err)).Inc()
	m.duration.WithLabelValues(a.name).Observe(took.Seconds())
}

// throttleWaits returns what notes the waits of one action. Its series begin
// with the first one: most actions are never throttled.
func (m *metrics) throttleWaits(a action) func(time.Duration) {
	return func(waited time.Duration) { m.throttleWait.WithLabelValues(a.name).Observe(waited.Seconds()) }
}

// resultOf returns ok, or the Kind of an error as a label's value.
func resultOf(err error) string {
	if err == nil {
		return "ok"
	}
	return strings.ReplaceAll(disk.KindOf(err).String(), " ", "_")
}

// countOperations notes a change of the number of attaches or detaches that wait or run.
func (m *metrics) countOperations(v instancequeue.Verb, state string, change float64) {
	m.operations.WithLabelValues(v.String(), state).Add(change)
}
