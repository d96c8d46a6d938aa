package ecs

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// metrics counts the calls. Actions and Kinds are closed sets, and so are the
// labels.
type metrics struct {
	requests     *prometheus.CounterVec
	duration     *prometheus.HistogramVec
	throttled    *prometheus.CounterVec
	throttleWait *prometheus.HistogramVec
	idsPerRead   prometheus.Histogram
	slots        *slotMeter
	waits        *waits
	waiters      prometheus.GaugeFunc
	oldestWait   prometheus.GaugeFunc
}

func newMetrics() *metrics {
	waits := newWaits()
	return &metrics{
		slots: newSlotMeter(),
		waits: waits,
		waiters: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "topodisk_ecs_waiters",
			Help: "Operations that wait for a disk to change.",
		}, func() float64 { n, _ := waits.now(); return float64(n) }),
		oldestWait: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "topodisk_ecs_oldest_wait_seconds",
			Help: "How long the operation that has waited longest for a disk to change has done so; 0 if none waits.",
		}, func() float64 { _, oldest := waits.now(); return oldest.Seconds() }),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "topodisk_ecs_requests_total",
			Help: "Calls to ECS, by action and by what came of them: ok, or the kind of error.",
		}, []string{"action", "kind"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "topodisk_ecs_request_duration_seconds",
			Help:    "Time from sending a call to ECS until its answer was read.",
			Buckets: []float64{.025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 40},
		}, []string{"action"}),
		throttled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "topodisk_ecs_throttled_total",
			Help: "Calls that ECS refused because of the rate of calls, under whatever code.",
		}, []string{"action"}),
		throttleWait: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "topodisk_ecs_throttle_wait_seconds",
			Help:    "Time that calls were held back because ECS throttles their action.",
			Buckets: []float64{.1, 1, 5, 15, 30, 60, 120},
		}, []string{"action"}),
		idsPerRead: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "topodisk_ecs_ids_per_read",
			Help:    "Disks that one shared DescribeDisks asks for.",
			Buckets: []float64{1, 2, 5, 10, 20, 50, 80, 100},
		}),
	}
}

func (m *metrics) register(r prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{m.requests, m.duration, m.throttled, m.throttleWait, m.idsPerRead, m.slots.gauge, m.waiters, m.oldestWait} {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

func (m *metrics) observe(a action, err error, took time.Duration) {
	m.requests.WithLabelValues(a.name, kindLabel(err)).Inc()
	m.duration.WithLabelValues(a.name).Observe(took.Seconds())
	if err != nil && disk.KindOf(err) == disk.Throttled {
		m.throttled.WithLabelValues(a.name).Inc()
	}
}

func kindLabel(err error) string {
	if err == nil {
		return "ok"
	}
	return strings.ReplaceAll(disk.KindOf(err).String(), " ", "_")
}

// slotMeter counts the attaches and detaches of all instances together.
type slotMeter struct{ gauge *prometheus.GaugeVec }

func newSlotMeter() *slotMeter {
	return &slotMeter{prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "topodisk_ecs_slots",
		Help: "Attaches and detaches of all instances, by whether they wait for a slot of theirs or hold one.",
	}, []string{"job", "state"})}
}

func (m *slotMeter) waiting(j job, n float64) { m.gauge.WithLabelValues(jobNames[j], "waiting").Add(n) }
func (m *slotMeter) running(j job, n float64) { m.gauge.WithLabelValues(jobNames[j], "running").Add(n) }
