package provisioner

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
)

// metrics are the provisioner's own; the library's and the CSI calls' come
// from their libraries.
type metrics struct {
	outcomes     *prometheus.CounterVec
	saveFailures prometheus.Counter
	spared       prometheus.Counter
	boundSeconds prometheus.Histogram
}

func newMetrics(registry prometheus.Registerer, j *journal) *metrics {
	m := &metrics{
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "topodisk_provisioner_create_failures_total",
			Help: "CreateVolume calls without a volume, by what they mean for the claim.",
		}, []string{"outcome"}),
		saveFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "topodisk_provisioner_pv_save_failures_total",
			Help: "Attempts to save a PersistentVolume that failed after its volume was made.",
		}),
		spared: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "topodisk_provisioner_creates_spared_total",
			Help: "CreateVolume calls not made because the driver had refused the same for want of stock a moment before.",
		}),
		boundSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "topodisk_provisioner_claim_to_pv_seconds",
			Help:    "Seconds from the claim's creation to its saved PersistentVolume.",
			Buckets: []float64{.5, 1, 2, 3, 5, 8, 13, 20, 30, 60, 120, 300, 600},
		}),
	}
	for o := range outcomeNames {
		m.outcomes.WithLabelValues(outcomeNames[o])
	}
	registry.MustRegister(m.outcomes, m.saveFailures, m.spared, m.boundSeconds,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "topodisk_provisioner_creates_under_way",
			Help: "Volumes asked of the driver whose PersistentVolume is not saved yet.",
		}, func() float64 { all, _ := j.underWay(); return float64(all) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "topodisk_provisioner_creates_unknown",
			Help: "Volumes under way of which an earlier call may have made the disk.",
		}, func() float64 { _, unknown := j.underWay(); return float64(unknown) }),
	)
	return m
}

func (m *metrics) outcome(o Outcome) { m.outcomes.WithLabelValues(o.String()).Inc() }

func (m *metrics) bound(claim *v1.PersistentVolumeClaim, now time.Time) {
	m.boundSeconds.Observe(now.Sub(claim.CreationTimestamp.Time).Seconds())
}

func newCommits(registry prometheus.Registerer) prometheus.Counter {
	commits := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "topodisk_provisioner_journal_commits_total",
		Help: "Writes of the journal to a ConfigMap.",
	})
	registry.MustRegister(commits)
	return commits
}
