package provisioner

import (
	"errors"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/topodisk/topodisk/internal/outofstock"
	"github.com/topodisk/topodisk/provisioner/attempt"
	"github.com/topodisk/topodisk/provisioner/journal"
	"github.com/topodisk/topodisk/provisioner/lib6"
	"github.com/topodisk/topodisk/provisioner/source"
	"github.com/topodisk/topodisk/provisioner/stock"
	"github.com/topodisk/topodisk/provisioner/watch"
	"github.com/topodisk/topodisk/topology"
)

// metrics are the provisioner's own and those of the library's names.
type metrics struct {
	outcomes     *prometheus.CounterVec
	reschedules  *prometheus.CounterVec
	leaks        *prometheus.CounterVec
	discards     prometheus.Counter
	saveFailures prometheus.Counter
	skipped      prometheus.Counter
	duplicates   prometheus.Counter
	savedSeconds *prometheus.HistogramVec

	recoveryFailures *prometheus.CounterVec
	auditFindings    *prometheus.GaugeVec

	upstream lib6.Metrics // under the library's names

	classes cache.Store // StorageClasses: others have no series
}

func newMetrics(registry prometheus.Registerer, attempts *attempt.Table, records store, classes cache.Store) *metrics {
	m := &metrics{
		upstream: lib6.NewMetrics(), classes: classes,
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "topodisk_provisioner_create_failures_total",
			Help: "CreateVolume calls that returned no volume, by StorageClass and by result for the claim.",
		}, []string{"class", "result"}),
		reschedules: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "topodisk_provisioner_reschedules_total",
			Help: "Claims returned to the scheduler, by reason.",
		}, []string{"reason"}),
		leaks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "topodisk_provisioner_leaks_prevented_total",
			Help: "Volumes that would have been leaked, by result: saved with a PersistentVolume, or deleted.",
		}, []string{"result"}),
		discards: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "topodisk_provisioner_volumes_discarded_total",
			Help: "Volumes deleted before they were saved, because another claim of the Pod could not have one for the same node.",
		}),
		saveFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "topodisk_provisioner_volume_save_failures_total",
			Help: "Failed attempts to save the PersistentVolume of a volume.",
		}),
		skipped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "topodisk_provisioner_creates_skipped_total",
			Help: "CreateVolume calls not made because the driver had just refused an equal request, or that of another claim of the Pod.",
		}),
		duplicates: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "topodisk_provisioner_duplicate_volumes_total",
			Help: "Claims for which more than one PersistentVolume was made.",
		}),
		recoveryFailures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "topodisk_provisioner_recovery_failures_total",
			Help: "Failed attempts of a new leader to read its caches or the journal before it provisions or deletes, by what could not be read.",
		}, []string{"step"}),
		auditFindings: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "topodisk_provisioner_audit_findings",
			Help: "Disks and PersistentVolumes without their counterpart, by finding, as of the leader's last hourly audit.",
		}, []string{"finding"}),
		savedSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "topodisk_provisioner_provision_duration_seconds",
			Help:    "Time from the creation of a claim until its PersistentVolume is saved, by data source of the volume.",
			Buckets: []float64{.5, 1, 2, 3, 5, 8, 13, 20, 30, 60, 120, 300, 600},
		}, []string{"data_source"}),
	}
	for _, reason := range rescheduleReasons {
		m.reschedules.WithLabelValues(reason)
	}
	for _, result := range []string{resultSaved, resultDeleted} {
		m.leaks.WithLabelValues(result)
	}
	for _, step := range []string{stepCaches, stepJournal} {
		m.recoveryFailures.WithLabelValues(step)
	}
	registry.MustRegister(
		m.upstream.PersistentVolumeClaimProvisionTotal, m.upstream.PersistentVolumeClaimProvisionFailedTotal,
		m.upstream.PersistentVolumeClaimProvisionDurationSeconds,
		m.upstream.PersistentVolumeDeleteTotal, m.upstream.PersistentVolumeDeleteFailedTotal, m.upstream.PersistentVolumeDeleteDurationSeconds)
	registry.MustRegister(m.outcomes, m.reschedules, m.leaks, m.discards, m.saveFailures, m.skipped, m.duplicates, m.savedSeconds, m.recoveryFailures,
		m.auditFindings,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "topodisk_provisioner_creates_in_flight",
			Help: "Volumes requested from the driver whose PersistentVolume is not saved yet.",
		}, func() float64 { all, _ := attempts.Open(); return float64(all) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "topodisk_provisioner_creates_unknown",
			Help: "Volumes in flight of unknown outcome: an earlier call may have made the disk, and the request is repeated.",
		}, func() float64 { _, doubtful := attempts.Open(); return float64(doubtful) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "topodisk_provisioner_journal_size_bytes",
			Help: "Size of the journal's records.",
		}, func() float64 { return float64(records.Size()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "topodisk_provisioner_journal_limit_bytes",
			Help: "Maximum size of the journal's records; claims wait while it is full.",
		}, func() float64 { return journal.Limit }),
	)
	return m
}

// The results of leaks_prevented_total: the volume was saved although its claim is gone
// or an earlier process has made it, or it was deleted because it can't be saved or nothing needs it.
const (
	resultSaved   = "saved"
	resultDeleted = "deleted"
)

var rescheduleReasons = []string{
	outOfStock, otherClaim, nodeChanged, "refused",
	labelOf(topology.NodeGone), labelOf(topology.NodeUnready), labelOf(topology.NodeNotAllowed), labelOf(topology.NodeMislabelled),
}

const (
	outOfStock  = "out_of_stock"
	nodeChanged = "node_changed"
	otherClaim  = "other_claim" // that was to get its volume first got none, or has returned to the scheduler
)

func labelOf(reason topology.Reason) string { return strings.ReplaceAll(reason.String(), " ", "_") }

// rescheduleReason returns which of rescheduleReasons an error has.
func rescheduleReason(err error) string {
	if reason, ok := topology.ReasonOf(err); ok {
		return labelOf(reason)
	}
	switch {
	case isOutOfStock(err):
		return outOfStock
	case errors.Is(err, errNodeChanged):
		return nodeChanged
	case errors.Is(err, errSiblingFirst), errors.Is(err, errReturned):
		return otherClaim
	}
	return "refused"
}

// isOutOfStock says whether the error is, or repeats, the driver's answer that it has no stock.
func isOutOfStock(err error) bool {
	var before *stock.RefusedBefore
	return errors.As(err, &before) && !before.OfClaim || outofstock.Is(err)
}

// label is the value of the label class: empty for a class that doesn't exist, for a claim may name any.
func (m *metrics) label(class string) string {
	if _, exists, err := m.classes.GetByKey(class); err != nil || !exists {
		return ""
	}
	return class
}

// forget removes the series of a class that is gone.
func (m *metrics) forget(class string) {
	for _, vec := range []*prometheus.MetricVec{
		m.upstream.PersistentVolumeClaimProvisionTotal.MetricVec, m.upstream.PersistentVolumeClaimProvisionFailedTotal.MetricVec,
		m.upstream.PersistentVolumeClaimProvisionDurationSeconds.MetricVec, m.upstream.PersistentVolumeDeleteTotal.MetricVec,
		m.upstream.PersistentVolumeDeleteFailedTotal.MetricVec, m.upstream.PersistentVolumeDeleteDurationSeconds.MetricVec, m.outcomes.MetricVec,
	} {
		vec.DeletePartialMatch(prometheus.Labels{"class": class})
	}
}

// begin shows the results and outcomes of a class at 0 from its first attempt on.
func (m *metrics) begin(class string) {
	class = m.label(class)
	m.upstream.PersistentVolumeClaimProvisionTotal.WithLabelValues(class)
	m.upstream.PersistentVolumeClaimProvisionFailedTotal.WithLabelValues(class)
	for _, o := range []attempt.Outcome{attempt.Finished, attempt.Background, attempt.Unchanged, attempt.Reschedule} {
		m.outcomes.WithLabelValues(class, o.String())
	}
}

func (m *metrics) outcome(class string, o attempt.Outcome) {
	m.outcomes.WithLabelValues(m.label(class), o.String()).Inc()
}

// The data sources of volumes.
const (
	sourceNone     = "none"
	sourceSnapshot = "VolumeSnapshot"
	sourceClaim    = "PersistentVolumeClaim"
)

// saved observes a claim whose PersistentVolume is saved.
func (m *metrics) saved(claim *v1.PersistentVolumeClaim, now time.Time) {
	from := sourceNone
	if o, ok := source.Of(claim); ok {
		from = sourceClaim
		if o.Resource == watch.VolumeSnapshots {
			from = sourceSnapshot
		}
	}
	m.savedSeconds.WithLabelValues(from).Observe(now.Sub(claim.CreationTimestamp.Time).Seconds())
}

func newCommits(registry prometheus.Registerer) prometheus.Counter {
	commits := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "topodisk_provisioner_journal_writes_total",
		Help: "Writes of the journal to a ConfigMap.",
	})
	registry.MustRegister(commits)
	return commits
}

func registerOldestDeletion(registry prometheus.Registerer, oldest func() time.Duration) {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "topodisk_provisioner_oldest_pending_deletion_seconds",
		Help: "Time since the release of the PersistentVolume that has waited longest for the deletion of its volume, or 0 if none does.",
	}, func() float64 { return oldest().Seconds() }))
}

// deleted counts an attempt to delete a volume.
func (m *metrics) deleted(class string, start time.Time, err error) {
	class = m.label(class)
	if err != nil {
		m.upstream.PersistentVolumeDeleteFailedTotal.WithLabelValues(class).Inc()
		return
	}
	m.upstream.PersistentVolumeDeleteTotal.WithLabelValues(class).Inc()
	m.upstream.PersistentVolumeDeleteDurationSeconds.WithLabelValues(class).Observe(time.Since(start).Seconds())
}
