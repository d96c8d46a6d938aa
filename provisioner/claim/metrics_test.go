package claim

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
	"github.com/topodisk/topodisk/topology"
)

// measured returns every series of the bench that is not zero.
func (b *bench) measured(t *testing.T) map[string]float64 {
	t.Helper()
	return provisionertest.Metrics(t, b.registry, "../../docs/monitoring.md")
}

// refuseVolumes has the API server refuse to save PersistentVolumes.
func (b *bench) refuseVolumes(err error) {
	b.api.PrependReactor("create", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
}

func TestMetrics(t *testing.T) {
	class := testClass(nil)
	try := func(b *bench, claim *v1.PersistentVolumeClaim) {
		_, _, _ = b.provision(t.Context(), claim, class, "node-1")
	}
	filled := func(kind string, group *string) *v1.PersistentVolumeClaim {
		return testClaim(func(c *v1.PersistentVolumeClaim) {
			c.Spec.DataSource = &v1.TypedLocalObjectReference{APIGroup: group, Kind: kind, Name: "source"}
		})
	}
	for name, test := range map[string]struct {
		answers []answer
		do      func(*bench)
		want    map[string]float64
	}{
		"a claim gets its volume": {[]answer{made("d-1", 0, "zone-a")}, func(b *bench) { try(b, testClaim()) },
			map[string]float64{"provision_duration_seconds{none}": 1}},
		"an earlier process has asked": {[]answer{made("d-1", 0, "zone-a")}, func(b *bench) { b.recovered(t, testClaim()) },
			map[string]float64{"provision_duration_seconds{none}": 1, "leaks_prevented_total{saved}": 1}},
		"an earlier process has asked, and the claim is gone": {[]answer{made("d-1", 0, "zone-a")}, func(b *bench) { b.recovered(t, nil) },
			map[string]float64{"leaks_prevented_total{deleted}": 1}},
		"a claim is filled from a snapshot": {nil,
			func(b *bench) {
				b.metrics.provisioned(filled("VolumeSnapshot", ptr.To("snapshot.storage.k8s.io")), b.clock, b.clock)
			},
			map[string]float64{"provision_duration_seconds{VolumeSnapshot}": 1}},
		"a claim is filled from another": {nil,
			func(b *bench) { b.metrics.provisioned(filled("PersistentVolumeClaim", nil), b.clock, b.clock) },
			map[string]float64{"provision_duration_seconds{PersistentVolumeClaim}": 1}},
		"nobody knows whether a volume was made": {[]answer{unavailable()}, func(b *bench) { try(b, testClaim()) },
			map[string]float64{"creates_in_flight{}": 1, "creates_unknown{}": 1, "create_failures_total{essd,background}": 1}},
		"the driver refuses": {[]answer{refused(codes.InvalidArgument)}, func(b *bench) { try(b, testClaim()) },
			map[string]float64{"create_failures_total{essd,finished}": 1}},
		"the zone has sold out, for two claims": {[]answer{soldOut()}, func(b *bench) { try(b, claimOf(1, "20Gi")); try(b, claimOf(2, "20Gi")) },
			map[string]float64{"create_failures_total{essd,reschedule}": 1, "reschedules_total{out_of_stock}": 2, "creates_skipped_total{}": 1}},
		"the node is gone": {nil, func(b *bench) { b.zones.Err = &topology.Error{Reason: topology.NodeGone}; try(b, testClaim()) },
			map[string]float64{"reschedules_total{node_gone}": 1}},
		"the volume can't be saved yet": {[]answer{made("d-1", 0, "zone-a")},
			func(b *bench) { b.refuseVolumes(apierrors.NewInternalError(errors.New("slow"))); try(b, testClaim()) },
			map[string]float64{"volume_save_failures_total{}": 1, "creates_in_flight{}": 1}},
		"the volume can never be saved, and its claim is gone": {[]answer{made("d-1", 0, "zone-a")},
			func(b *bench) {
				b.refuseVolumes(apierrors.NewForbidden(v1.Resource("persistentvolumes"), "d-1", nil))
				try(b, testClaim())
				must(t, b.Claims.Delete(testClaim()))
				b.ClaimGone(testClaim())
				_, _, _ = b.attempt(t.Context(), testUID)
			},
			map[string]float64{"volume_save_failures_total{}": 2, "leaks_prevented_total{deleted}": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, test.answers)
			test.do(b)
			if got := b.measured(t); fmt.Sprint(got) != fmt.Sprint(test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// increase() of Prometheus doesn't count the value that a series begins with.
func TestResultsOfAClassBeginTogether(t *testing.T) {
	const name = "controller_persistentvolumeclaim_provision_"
	for what, test := range map[string]struct {
		answer         answer
		total, failure float64
	}{
		"a volume":  {made("d-1", 0, "zone-a"), 1, 0},
		"a failure": {refused(codes.InvalidArgument), 0, 1},
	} {
		t.Run(what, func(t *testing.T) {
			b := newBench(t, []answer{test.answer})
			_, _, _ = b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
			if n, err := testutil.GatherAndCount(b.registry, name+"total", name+"failed_total"); n != 2 || err != nil {
				t.Errorf("%d series, %v", n, err)
			}
			total := testutil.ToFloat64(b.Upstream.PersistentVolumeClaimProvisionTotal)
			if failure := testutil.ToFloat64(b.Upstream.PersistentVolumeClaimProvisionFailedTotal); total != test.total || failure != test.failure {
				t.Errorf("%v volumes and %v failures, want %v and %v", total, failure, test.total, test.failure)
			}
		})
	}
}

func TestDurationBucketsReachTenMinutes(t *testing.T) {
	b := newBench(t, nil)
	claim := testClaim(func(c *v1.PersistentVolumeClaim) { c.CreationTimestamp = metav1.NewTime(b.clock.Add(-9 * time.Minute)) })
	b.metrics.provisioned(claim, b.clock, b.clock)
	families, err := b.registry.Gather()
	must(t, err)
	histograms := 0
	for _, family := range families {
		for _, m := range family.Metric {
			if m.Histogram == nil || family.GetName() != "topodisk_provisioner_provision_duration_seconds" {
				continue
			}
			histograms++
			buckets := m.Histogram.Bucket
			if last := buckets[len(buckets)-1]; last.GetUpperBound() != 600 || last.GetCumulativeCount() != m.Histogram.GetSampleCount() {
				t.Errorf("got %v", m)
			}
		}
	}
	if histograms != 1 {
		t.Errorf("%d histograms, want that of the source", histograms)
	}
}

// A claim may name any class, so only those that exist have series, for as long as they do.
func TestOnlyClassesThatExistHaveSeries(t *testing.T) {
	b := newBench(t, nil)
	must(t, b.Classes.Add(testClass(nil)))
	provisionertest.CheckClassSeries(t, b.registry, func(class string) {
		b.metrics.failed(class, errors.New("no"))
		b.metrics.answered(class, maybeVolume)
		b.metrics.provisioned(testClaim(func(c *v1.PersistentVolumeClaim) { c.Spec.StorageClassName = &class }), b.clock, b.clock)
	}, b.ClassGone)
}

// A scrape that waited for the lock would wait for ever: what holds it may wait for the scrape to end.
func TestMetricsAreReadWithoutTheLock(t *testing.T) {
	b := newBench(t, nil)
	b.mu.Lock()
	defer b.mu.Unlock()
	done := make(chan error, 1)
	go func() { _, err := b.registry.Gather(); done <- err }()
	select {
	case err := <-done:
		must(t, err)
	case <-time.After(30 * time.Second):
		t.Error("it waits")
	}
}
