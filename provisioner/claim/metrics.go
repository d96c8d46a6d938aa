package claim

import (
	"errors"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	v1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/internal/outofstock"
	"github.com/topodisk/topodisk/provisioner/lib6"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/source"
	"github.com/topodisk/topodisk/provisioner/stock"
	"github.com/topodisk/topodisk/provisioner/watch"
	"github.com/topodisk/topodisk/topology"
)

// metrics are those of claims: the provisioner's own, and some of the library's names.
type metrics struct {
	*Syncer
	byClass      lib6.ByClass
	outcomes     *prometheus.CounterVec
	reschedules  *prometheus.CounterVec
	saved        prometheus.Counter // volumes that would have been lost
	deleted      prometheus.Counter // and those that were deleted
	discarded    prometheus.Counter
	saveFailures prometheus.Counter
	skipped      prometheus.Counter
	savedSeconds *prometheus.HistogramVec
	onFailure    func(error) // is called with why each attempt without a volume has ended
}

func newMetrics(s *Syncer) *metrics {
	made := promauto.With(s.Registry)
	leaks := made.NewCounterVec(prometheus.CounterOpts{
		Name: "topodisk_provisioner_leaks_prevented_total",
		Help: "Volumes that would have been leaked, by result: saved with a PersistentVolume, or deleted.",
	}, []string{"result"})
	m := &metrics{
		Syncer: s, onFailure: func(error) {}, saved: leaks.WithLabelValues("saved"), deleted: leaks.WithLabelValues("deleted"),
		outcomes: made.NewCounterVec(prometheus.CounterOpts{
			Name: "topodisk_provisioner_create_failures_total",
			Help: "CreateVolume calls that returned no volume, by StorageClass and by result for the claim.",
		}, []string{"class", "result"}),
		reschedules: made.NewCounterVec(prometheus.CounterOpts{
			Name: "topodisk_provisioner_reschedules_total",
			Help: "Claims returned to the scheduler, by reason.",
		}, []string{"reason"}),
		discarded: made.NewCounter(prometheus.CounterOpts{
			Name: "topodisk_provisioner_volumes_discarded_total",
			Help: "Volumes deleted before they were saved, because another claim of the Pod could not have one for the same node.",
		}),
		saveFailures: made.NewCounter(prometheus.CounterOpts{
			Name: "topodisk_provisioner_volume_save_failures_total",
			Help: "Failed attempts to save the PersistentVolume of a volume.",
		}),
		skipped: made.NewCounter(prometheus.CounterOpts{
			Name: "topodisk_provisioner_creates_skipped_total",
			Help: "CreateVolume calls not made because the driver had just refused an equal request, or that of another claim of the Pod.",
		}),
		savedSeconds: made.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "topodisk_provisioner_provision_duration_seconds",
			Help:    "Time from the creation of a claim until its PersistentVolume is saved, by data source of the volume.",
			Buckets: []float64{.5, 1, 2, 3, 5, 8, 13, 20, 30, 60, 120, 300, 600},
		}, []string{"data_source"}),
	}
	m.byClass = lib6.ByClass{Classes: s.Classes, Metrics: []*prometheus.MetricVec{
		s.Upstream.PersistentVolumeClaimProvisionTotal.MetricVec, s.Upstream.PersistentVolumeClaimProvisionFailedTotal.MetricVec,
		s.Upstream.PersistentVolumeClaimProvisionDurationSeconds.MetricVec, m.outcomes.MetricVec,
	}}
	for _, reason := range rescheduleReasons {
		m.reschedules.WithLabelValues(reason)
	}
	s.Registry.MustRegister(
		s.Upstream.PersistentVolumeClaimProvisionTotal, s.Upstream.PersistentVolumeClaimProvisionFailedTotal,
		s.Upstream.PersistentVolumeClaimProvisionDurationSeconds)
	made.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "topodisk_provisioner_creates_in_flight",
		Help: "Volumes requested from the driver whose PersistentVolume is not saved yet.",
	}, func() float64 { all, _ := s.Open(); return float64(all) })
	made.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "topodisk_provisioner_creates_unknown",
		Help: "Volumes in flight of unknown outcome: an earlier call may have made the disk, and the request is repeated.",
	}, func() float64 { _, unknown := s.Open(); return float64(unknown) })
	return m
}

var rescheduleReasons = []string{
	labelOutOfStock, labelOtherClaim, labelNodeChanged, labelRefused,
	labelOf(topology.NodeGone), labelOf(topology.NodeUnready), labelOf(topology.NodeNotAllowed), labelOf(topology.NodeMislabelled),
}

const (
	labelOutOfStock  = "out_of_stock"
	labelNodeChanged = "node_changed"
	labelOtherClaim  = "other_claim" // that was to get its volume first got none, or has returned to the scheduler
	labelRefused     = "refused"
)

func labelOf(reason topology.Reason) string { return strings.ReplaceAll(reason.String(), " ", "_") }

// rescheduled counts a claim that is returned to the scheduler.
func (m *metrics) rescheduled(why error) { m.reschedules.WithLabelValues(rescheduleReason(why)).Inc() }

// rescheduleReason returns which of rescheduleReasons an error has.
func rescheduleReason(err error) string {
	if reason, ok := topology.ReasonOf(err); ok {
		return labelOf(reason)
	}
	switch {
	case isOutOfStock(err):
		return labelOutOfStock
	case errors.Is(err, errNodeChanged):
		return labelNodeChanged
	case errors.Is(err, errSiblingFirst), errors.Is(err, errReturned):
		return labelOtherClaim
	}
	return labelRefused
}

// isOutOfStock says whether the error is, or repeats, the driver's answer that it has no stock.
func isOutOfStock(err error) bool {
	before, ok := errors.AsType[*stock.RefusedBefore](err)
	return ok && !before.OfClaim || outofstock.Is(err)
}

// begin shows the results and outcomes of a class at 0 from its first attempt on.
func (m *metrics) begin(class string) (label string) {
	label = m.byClass.Label(class)
	m.Upstream.PersistentVolumeClaimProvisionTotal.WithLabelValues(label)
	m.Upstream.PersistentVolumeClaimProvisionFailedTotal.WithLabelValues(label)
	for _, name := range outcomes {
		m.outcomes.WithLabelValues(label, name)
	}
	return label
}

// failed counts an attempt that has ended without a volume.
func (m *metrics) failed(class string, why error) {
	m.onFailure(why)
	m.Upstream.PersistentVolumeClaimProvisionFailedTotal.WithLabelValues(m.begin(class)).Inc()
}

// answered counts an answer of the driver without a volume.
func (m *metrics) answered(class string, o outcome) {
	m.outcomes.WithLabelValues(m.byClass.Label(class), o.String()).Inc()
}

// The data sources of volumes.
const (
	sourceNone     = "none"
	sourceSnapshot = "VolumeSnapshot"
	sourceClaim    = "PersistentVolumeClaim"
)

// provisioned counts a claim whose PersistentVolume is saved.
func (m *metrics) provisioned(claim *v1.PersistentVolumeClaim, began, now time.Time) {
	label := m.begin(request.ClassName(claim))
	m.Upstream.PersistentVolumeClaimProvisionTotal.WithLabelValues(label).Inc()
	m.Upstream.PersistentVolumeClaimProvisionDurationSeconds.WithLabelValues(label).Observe(now.Sub(began).Seconds())
	from := sourceNone
	if o, ok := source.Of(claim); ok {
		from = sourceClaim
		if o.Resource == watch.VolumeSnapshots {
			from = sourceSnapshot
		}
	}
	m.savedSeconds.WithLabelValues(from).Observe(now.Sub(claim.CreationTimestamp.Time).Seconds())
}
