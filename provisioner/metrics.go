package provisioner

import (
	"errors"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/provisioner/attempt"
	"github.com/topodisk/topodisk/provisioner/journal"
	"github.com/topodisk/topodisk/provisioner/lib6"
	"github.com/topodisk/topodisk/provisioner/source"
	"github.com/topodisk/topodisk/provisioner/stock"
	"github.com/topodisk/topodisk/provisioner/watch"
	"github.com/topodisk/topodisk/topology"
)

// metrics are the provisioner's own; the library's and the CSI calls' come
// from their libraries.
type metrics struct {
	outcomes     *prometheus.CounterVec
	reschedules  *prometheus.CounterVec
	leaks        *prometheus.CounterVec
	saveFailures prometheus.Counter
	skipped      prometheus.Counter
	duplicates   prometheus.Counter
	boundSeconds *prometheus.HistogramVec

	recoveryFailures *prometheus.CounterVec
	orphans          prometheus.Gauge

	upstream lib6.Metrics // under the library's names
}

func newMetrics(registry prometheus.Registerer, attempts *attempt.Table, records store) *metrics {
	m := &metrics{
		upstream: lib6.NewMetrics(),
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "topodisk_provisioner_create_failures_total",
			Help: "CreateVolume calls that returned no volume, by StorageClass and by what that means for the claim.",
		}, []string{"class", "result"}),
		reschedules: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "topodisk_provisioner_reschedules_total",
			Help: "Claims sent back to the scheduler, by reason.",
		}, []string{"reason"}),
		leaks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "topodisk_provisioner_leaks_prevented_total",
			Help: "Volumes that would have been leaked by result: saved with a PersistentVolume, or deleted.",
		}, []string{"result"}),
		saveFailures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "topodisk_provisioner_volume_save_failures_total",
			Help: "Attempts to save a PersistentVolume that failed after its volume was made.",
		}),
		skipped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "topodisk_provisioner_creates_skipped_total",
			Help: "CreateVolume calls not made because the driver had just refused the same request for lack of stock.",
		}),
		duplicates: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "topodisk_provisioner_duplicate_volumes_total",
			Help: "Claims for which more than one PersistentVolume was made.",
		}),
		recoveryFailures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "topodisk_provisioner_recovery_failures_total",
			Help: "Failed attempts to read what must be known before anything is provisioned or deleted, by what could not be read.",
		}, []string{"step"}),
		orphans: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "topodisk_provisioner_orphan_disks",
			Help: "Disks of the cluster that no PersistentVolume and no claim stands for, as of the leader's last hourly audit.",
		}),
		boundSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "topodisk_provisioner_provision_duration_seconds",
			Help:    "Time from the claim's creation to its saved PersistentVolume by data source of the volume.",
			Buckets: []float64{.5, 1, 2, 3, 5, 8, 13, 20, 30, 60, 120, 300, 600},
		}, []string{"data_source"}),
	}
	for _, reason := range rescheduleReasons {
		m.reschedules.WithLabelValues(reason)
	}
	for _, end := range []string{endSaved, endDeleted} {
		m.leaks.WithLabelValues(end)
	}
	registry.MustRegister(
		m.upstream.PersistentVolumeClaimProvisionTotal, m.upstream.PersistentVolumeClaimProvisionFailedTotal, m.upstream.PersistentVolumeClaimProvisionDurationSeconds,
		m.upstream.PersistentVolumeDeleteTotal, m.upstream.PersistentVolumeDeleteFailedTotal, m.upstream.PersistentVolumeDeleteDurationSeconds)
	registry.MustRegister(m.outcomes, m.reschedules, m.leaks, m.saveFailures, m.skipped, m.duplicates, m.boundSeconds, m.recoveryFailures, m.orphans,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "topodisk_provisioner_creates_in_flight",
			Help: "Volumes requested from the driver whose PersistentVolume is not saved yet.",
		}, func() float64 { all, _ := attempts.Open(); return float64(all) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "topodisk_provisioner_creates_unknown",
			Help: "Volumes in flight of which an earlier call may have made the disk: their request is repeated in the background.",
		}, func() float64 { _, doubtful := attempts.Open(); return float64(doubtful) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "topodisk_provisioner_journal_size_bytes",
			Help: "Size of the journal's entries.",
		}, func() float64 { return float64(records.Size()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "topodisk_provisioner_journal_limit_bytes",
			Help: "Size up to which the journal takes entries; claims wait while it is full.",
		}, func() float64 { return journal.Limit }),
	)
	return m
}

// What becomes of a volume that would have been forgotten: it gets its
// PersistentVolume although its claim is gone or an earlier process has made it,
// or it is deleted since none can stand for it.
const (
	endSaved   = "saved"
	endDeleted = "deleted"
)

var rescheduleReasons = []string{outOfStock, "refused", labelOf(topology.NodeGone), labelOf(topology.NodeUnready), labelOf(topology.NodeNotAllowed)}

const outOfStock = "out_of_stock"

func labelOf(reason topology.Reason) string { return strings.ReplaceAll(reason.String(), " ", "_") }

// rescheduleReason names the reason of an error with Reschedule, one of rescheduleReasons.
func rescheduleReason(err error) string {
	if reason, ok := topology.ReasonOf(err); ok {
		return labelOf(reason)
	}
	var before *stock.RefusedBefore
	if errors.As(err, &before) || status.Code(err) == codes.ResourceExhausted {
		return outOfStock
	}
	return "refused"
}

func (m *metrics) outcome(class string, o attempt.Outcome) {
	m.outcomes.WithLabelValues(class, o.String()).Inc()
}

// What a volume may be filled from.
const (
	filledFromNothing  = "none"
	filledFromSnapshot = "VolumeSnapshot"
	filledFromClaim    = "PersistentVolumeClaim"
)

func (m *metrics) bound(claim *v1.PersistentVolumeClaim, now time.Time) {
	from := filledFromNothing
	if o, filled := source.Of(claim); filled {
		from = filledFromClaim
		if o.Resource == watch.VolumeSnapshots {
			from = filledFromSnapshot
		}
	}
	m.boundSeconds.WithLabelValues(from).Observe(now.Sub(claim.CreationTimestamp.Time).Seconds())
}

func newCommits(registry prometheus.Registerer) prometheus.Counter {
	commits := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "topodisk_provisioner_journal_writes_total",
		Help: "Writes of the journal to a ConfigMap.",
	})
	registry.MustRegister(commits)
	return commits
}

// deleted counts an attempt to delete a volume.
func (m *metrics) deleted(class string, start time.Time, err error) {
	if err != nil {
		m.upstream.PersistentVolumeDeleteFailedTotal.WithLabelValues(class).Inc()
		return
	}
	m.upstream.PersistentVolumeDeleteTotal.WithLabelValues(class).Inc()
	m.upstream.PersistentVolumeDeleteDurationSeconds.WithLabelValues(class).Observe(time.Since(start).Seconds())
}
