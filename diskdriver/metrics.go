package diskdriver

import (
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// methods are the names that metrics are labelled with: those of the CSI
// services, so that no caller can invent one.
var methods = func() map[string]bool {
	known := make(map[string]bool)
	for _, service := range []grpc.ServiceDesc{csi.Identity_ServiceDesc, csi.Controller_ServiceDesc, csi.GroupController_ServiceDesc, csi.Node_ServiceDesc} {
		for _, m := range service.Methods {
			known[m.MethodName] = true
		}
	}
	return known
}()

// metrics are what the driver counts of its calls.
type metrics struct {
	seconds *prometheus.HistogramVec
	running *prometheus.GaugeVec
	panics  prometheus.Counter
	ready   prometheus.Gauge
}

func newMetrics() *metrics {
	return &metrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "topodisk_csi_call_duration_seconds",
			Help:    "Duration of CSI calls by method and gRPC code.",
			Buckets: []float64{0.005, 0.05, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300},
		}, []string{"method", "code"}),
		running: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "topodisk_csi_calls_in_flight",
			Help: "CSI calls in progress by method.",
		}, []string{"method"}),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "topodisk_csi_panics_total",
			Help: "CSI calls whose handler panicked.",
		}),
		ready: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "topodisk_driver_ready",
			Help: "1 if ECS answered the driver when it was last asked, else 0.",
		}),
	}
}

func (m *metrics) register(r prometheus.Registerer, more ...prometheus.Collector) error {
	for _, c := range append([]prometheus.Collector{m.seconds, m.running, m.panics, m.ready}, more...) {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// began counts a call that begins, and returns what counts and times its end.
func (m *metrics) began(method string) (ended func(codes.Code)) {
	if !methods[method] {
		method = "other"
	}
	m.running.WithLabelValues(method).Inc()
	start := time.Now()
	return func(code codes.Code) {
		m.running.WithLabelValues(method).Dec()
		m.seconds.WithLabelValues(method, code.String()).Observe(time.Since(start).Seconds())
	}
}
