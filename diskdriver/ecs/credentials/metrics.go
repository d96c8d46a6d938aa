package credentials

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics say how fresh the credentials of this process are. Of the four
// sources a process has one, and source says which.
type metrics struct {
	source   string
	renewals *prometheus.CounterVec
	failing  prometheus.Gauge
	end      prometheus.Gauge
}

func newMetrics(source string) *metrics {
	label := prometheus.Labels{"source": strings.ReplaceAll(source, "-", "_")}
	m := &metrics{
		source: source,
		renewals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name:        "topodisk_ecs_credentials_renewals_total",
			Help:        "Times that credentials were read or fetched again by result: ok or error.",
			ConstLabels: label,
		}, []string{"result"}),
		failing: prometheus.NewGauge(prometheus.GaugeOpts{
			Name:        "topodisk_ecs_credentials_failing",
			Help:        "1 while credentials cannot be read or fetched again; the previous ones stay in use while they are valid.",
			ConstLabels: label,
		}),
		end: prometheus.NewGauge(prometheus.GaugeOpts{
			Name:        "topodisk_ecs_credentials_expiry_timestamp_seconds",
			Help:        "Unix time until which the credentials in use are valid; 0 if that is not known.",
			ConstLabels: label,
		}),
	}
	for _, result := range []string{resultOK, resultError} {
		m.renewals.WithLabelValues(result)
	}
	return m
}

const (
	resultOK    = "ok"
	resultError = "error"
)

func (m *metrics) register(r prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{m.renewals, m.failing, m.end} {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// renewed counts new credentials that are valid until end; zero is not known.
func (m *metrics) renewed(end time.Time) {
	m.renewals.WithLabelValues(resultOK).Inc()
	m.failing.Set(0)
	if !end.IsZero() {
		m.end.Set(float64(end.UnixMilli()) / 1000)
	}
}

func (m *metrics) failed() {
	m.renewals.WithLabelValues(resultError).Inc()
	m.failing.Set(1)
}
