package transport

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// metrics count the calls. Actions and Kinds are closed sets, and so are the
// labels.
type metrics struct {
	requests     *prometheus.CounterVec
	duration     *prometheus.HistogramVec
	throttleWait *prometheus.HistogramVec
	throttled    *prometheus.GaugeVec
	begun        sync.Map // the actions that have been called
}

// watchedKinds are the errors that alerts count. Their series begin at 0 with the first call of an action, because the
// increase of a series doesn't include its first value.
var watchedKinds = []disk.Kind{disk.Throttled, disk.UnknownOutcome, disk.Unreachable, disk.Unexpected}

func newMetrics() *metrics {
	return &metrics{
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
		throttled: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "topodisk_ecs_throttled_calls",
			Help: "Calls that wait just now because ECS throttles their action.",
		}, []string{"action"}),
	}
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.duration, m.throttleWait, m.throttled}
}

func (m *metrics) observe(action string, err error, took time.Duration) {
	if _, called := m.begun.LoadOrStore(action, true); !called {
		for _, kind := range watchedKinds {
			m.requests.WithLabelValues(action, resultOfKind(kind))
		}
	}
	m.requests.WithLabelValues(action, resultOf(err)).Inc()
	m.duration.WithLabelValues(action).Observe(took.Seconds())
}

// delay observes a call of an action that ECS throttles, from now on until it is over. The
// series of an action begin with the first one: most actions are never throttled.
func (m *metrics) delay(action string) (over func()) {
	began := time.Now()
	m.throttled.WithLabelValues(action).Inc()
	return func() {
		m.throttled.WithLabelValues(action).Dec()
		m.throttleWait.WithLabelValues(action).Observe(time.Since(began).Seconds())
	}
}

// resultOf returns ok, or the Kind of an error as a label's value.
func resultOf(err error) string {
	if err == nil {
		return "ok"
	}
	return resultOfKind(disk.KindOf(err))
}

func resultOfKind(kind disk.Kind) string { return strings.ReplaceAll(kind.String(), " ", "_") }
