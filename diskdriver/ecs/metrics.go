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
	throttleWait *prometheus.HistogramVec
}

func newMetrics() *metrics {
	return &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "topodisk_ecs_requests_total",
			Help: "Calls to ECS, by action and by what came of them: ok, or the kind of error.",
		}, []string{"action", "kind"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "topodisk_ecs_request_duration_seconds",
			Help:    "Time from sending a call to ECS until its answer was read.",
			Buckets: []float64{.025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 40},
		}, []string{"action"}),
		throttleWait: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "topodisk_ecs_throttle_wait_seconds",
			Help:    "Time that calls were held back because ECS throttles their action.",
			Buckets: []float64{.1, 1, 5, 15, 30, 60, 120},
		}, []string{"action"}),
	}
}

func (m *metrics) register(r prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{m.requests, m.duration, m.throttleWait} {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

func (m *metrics) observe(a action, err error, took time.Duration) {
	m.requests.WithLabelValues(a.name, kindLabel(err)).Inc()
	m.duration.WithLabelValues(a.name).Observe(took.Seconds())
}

func kindLabel(err error) string {
	if err == nil {
		return "ok"
	}
	return strings.ReplaceAll(disk.KindOf(err).String(), " ", "_")
}
