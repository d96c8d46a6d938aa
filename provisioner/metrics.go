package provisioner

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/client-go/tools/cache"

	"github.com/topodisk/topodisk/provisioner/journal"
	"github.com/topodisk/topodisk/provisioner/lib6"
)

// metrics are those of the process: package claim has those of claims.
type metrics struct {
	made     promauto.Factory
	upstream lib6.Metrics // under the library's names
	byClass  lib6.ByClass

	duplicates       prometheus.Counter
	commits          prometheus.Counter
	recoveryFailures *prometheus.CounterVec
	auditFindings    *prometheus.GaugeVec
}

func newMetrics(registry prometheus.Registerer, upstream lib6.Metrics, classes cache.Store) *metrics {
	made := promauto.With(registry)
	m := &metrics{
		made: made, upstream: upstream,
		byClass: lib6.ByClass{Classes: classes, Metrics: []*prometheus.MetricVec{
			upstream.PersistentVolumeDeleteTotal.MetricVec, upstream.PersistentVolumeDeleteFailedTotal.MetricVec,
			upstream.PersistentVolumeDeleteDurationSeconds.MetricVec,
		}},
		duplicates: made.NewCounter(prometheus.CounterOpts{
			Name: "topodisk_provisioner_duplicate_volumes_total",
			Help: "Claims for which more than one PersistentVolume was made.",
		}),
		commits: made.NewCounter(prometheus.CounterOpts{
			Name: "topodisk_provisioner_journal_writes_total",
			Help: "Writes of the journal to a ConfigMap.",
		}),
		recoveryFailures: made.NewCounterVec(prometheus.CounterOpts{
			Name: "topodisk_provisioner_recovery_failures_total",
			Help: "Failed attempts of a new leader to read its caches or the journal before it provisions or deletes, by what could not be read.",
		}, []string{"step"}),
		auditFindings: made.NewGaugeVec(prometheus.GaugeOpts{
			Name: "topodisk_provisioner_audit_findings",
			Help: "Disks and PersistentVolumes without their counterpart, by finding, as of the leader's last hourly audit.",
		}, []string{"finding"}),
	}
	for _, step := range []string{stepCaches, stepJournal} {
		m.recoveryFailures.WithLabelValues(step)
	}
	registry.MustRegister(
		upstream.PersistentVolumeDeleteTotal, upstream.PersistentVolumeDeleteFailedTotal, upstream.PersistentVolumeDeleteDurationSeconds)
	return m
}

// journal registers the size of the journal.
func (m *metrics) journal(size func() int) {
	m.made.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "topodisk_provisioner_journal_size_bytes",
		Help: "Size of the journal's records.",
	}, func() float64 { return float64(size()) })
	m.made.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "topodisk_provisioner_journal_limit_bytes",
		Help: "Maximum size of the journal's records; claims wait while it is full.",
	}, func() float64 { return journal.Limit })
}

// oldestDeletion registers since when the oldest deletion is pending.
func (m *metrics) oldestDeletion(oldest func() time.Duration) {
	m.made.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "topodisk_provisioner_oldest_pending_deletion_seconds",
		Help: "Time since the release of the PersistentVolume that has waited longest for the deletion of its volume, or 0 if none does.",
	}, func() float64 { return oldest().Seconds() })
}

// deleted counts an attempt to delete a volume.
func (m *metrics) deleted(class string, start time.Time, err error) {
	class = m.byClass.Label(class)
	if err != nil {
		m.upstream.PersistentVolumeDeleteFailedTotal.WithLabelValues(class).Inc()
		return
	}
	m.upstream.PersistentVolumeDeleteTotal.WithLabelValues(class).Inc()
	m.upstream.PersistentVolumeDeleteDurationSeconds.WithLabelValues(class).Observe(time.Since(start).Seconds())
}
