package provisioner

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/attempt"
	"github.com/topodisk/topodisk/test/golden"
	"github.com/topodisk/topodisk/topology"
)

// measured returns every series of a registry that is not zero, as name{values} without the common prefix; a
// histogram counts as the number of what it has seen.
func measured(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	golden.Metrics(t, "../docs/monitoring.md", golden.Families(families))
	all := map[string]float64{}
	for _, family := range families {
		for _, m := range family.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetValue())
			}
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			if key := strings.TrimPrefix(family.GetName(), "topodisk_provisioner_"); value != 0 && key != "journal_limit_bytes" && !strings.HasPrefix(key, "controller_") {
				all[key+"{"+strings.Join(labels, ",")+"}"] = value
			}
		}
	}
	return all
}

func TestMetrics(t *testing.T) {
	class := testClass(nil)
	try := func(b *bench, claim *v1.PersistentVolumeClaim) {
		_, _, _ = b.provision(t.Context(), claim, class, "node-1")
	}
	refuseVolumes := func(b *bench, err error) {
		b.api.PrependReactor("create", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
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
		"a claim gets its volume": {[]answer{made("d-1", 0, "zone-a")},
			func(b *bench) { _ = b.claims.Add(testClaim()); try(b, testClaim()) },
			map[string]float64{"provision_duration_seconds{none}": 1}},
		"an earlier process has asked": {[]answer{made("d-1", 0, "zone-a")}, func(b *bench) { b.recovered(t, testClaim()) },
			map[string]float64{"provision_duration_seconds{none}": 1, "leaks_prevented_total{saved}": 1}},
		"an earlier process has asked, and the claim is gone": {[]answer{made("d-1", 0, "zone-a")}, func(b *bench) { b.recovered(t, nil) },
			map[string]float64{"leaks_prevented_total{deleted}": 1}},
		"a claim is filled from a snapshot": {nil, func(b *bench) { b.metrics.saved(filled("VolumeSnapshot", ptr.To("snapshot.storage.k8s.io")), b.clock) },
			map[string]float64{"provision_duration_seconds{VolumeSnapshot}": 1}},
		"a claim is filled from another": {nil, func(b *bench) { b.metrics.saved(filled("PersistentVolumeClaim", nil), b.clock) },
			map[string]float64{"provision_duration_seconds{PersistentVolumeClaim}": 1}},
		"nobody knows whether a volume was made": {[]answer{unavailable()}, func(b *bench) { try(b, testClaim()) },
			map[string]float64{"creates_in_flight{}": 1, "creates_unknown{}": 1, "create_failures_total{essd,background}": 1}},
		"the driver refuses": {[]answer{refused(codes.InvalidArgument)}, func(b *bench) { try(b, testClaim()) },
			map[string]float64{"create_failures_total{essd,finished}": 1}},
		"the zone has sold out, for two claims": {[]answer{soldOutAnswer()}, func(b *bench) { try(b, claimOf(1, "20Gi")); try(b, claimOf(2, "20Gi")) },
			map[string]float64{"create_failures_total{essd,reschedule}": 1, "reschedules_total{out_of_stock}": 2, "creates_skipped_total{}": 1}},
		"the node is gone": {nil, func(b *bench) { b.zones.err = &topology.Error{Reason: topology.NodeGone}; try(b, testClaim()) },
			map[string]float64{"reschedules_total{node_gone}": 1}},
		"the volume can't be saved yet": {[]answer{made("d-1", 0, "zone-a")},
			func(b *bench) { refuseVolumes(b, apierrors.NewInternalError(errString("slow"))); try(b, testClaim()) },
			map[string]float64{"volume_save_failures_total{}": 1, "creates_in_flight{}": 1}},
		"the volume can never be saved, and its claim is gone": {[]answer{made("d-1", 0, "zone-a")},
			func(b *bench) {
				refuseVolumes(b, apierrors.NewForbidden(v1.Resource("persistentvolumes"), "d-1", nil))
				try(b, testClaim())
			},
			map[string]float64{"volume_save_failures_total{}": 1, "leaks_prevented_total{deleted}": 1}},
		"a claim has two volumes": {nil, func(b *bench) {
			for _, id := range []string{"d-1", "d-2"} {
				if err := b.volumes.Add(testVolume(id)); err != nil {
					t.Error(err)
				}
			}
			b.duplicates.volumeChanged(testVolume("d-2"))
		}, map[string]float64{"duplicate_volumes_total{}": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, test.answers)
			test.do(b)
			if got := measured(t, b.registry); fmt.Sprint(got) != fmt.Sprint(test.want) {
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
			must(t, b.claims.Add(testClaim()))
			_, _, _ = b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
			if n, err := testutil.GatherAndCount(b.registry, name+"total", name+"failed_total"); n != 2 || err != nil {
				t.Errorf("%d series, %v", n, err)
			}
			total := testutil.ToFloat64(b.metrics.upstream.PersistentVolumeClaimProvisionTotal)
			if failure := testutil.ToFloat64(b.metrics.upstream.PersistentVolumeClaimProvisionFailedTotal); total != test.total || failure != test.failure {
				t.Errorf("%v volumes and %v failures, want %v and %v", total, failure, test.total, test.failure)
			}
		})
	}
}

func TestJournalMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		b := newBench(t, []answer{unavailable(), refused(codes.Internal)})
		b.store = runStore(t, fake.NewClientset(), newCommits(registry).Inc)
		b.metrics = newMetrics(registry, b.attempts, b.store, b.resolver.classes)
		_, _, _ = b.provision(t.Context(), claimOf(1, "20Gi"), testClass(nil), "node-1")
		got := measured(t, registry)
		if got["journal_writes_total{}"] != 1 || got["journal_size_bytes{}"] < 100 || got["creates_in_flight{}"] != 1 {
			t.Errorf("with a record: %v", got)
		}
		_, _, _ = b.provision(t.Context(), claimOf(1, "20Gi"), testClass(nil), "node-1")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := measured(t, registry); got["journal_writes_total{}"] != 2 || got["journal_size_bytes{}"] != 0 || got["creates_in_flight{}"] != 0 {
			t.Errorf("without: %v", got)
		}
	})
}

func TestDurationBucketsReachTenMinutes(t *testing.T) {
	b := newBench(t, nil)
	b.metrics.saved(testClaim(func(c *v1.PersistentVolumeClaim) { c.CreationTimestamp = metav1.NewTime(b.clock.Add(-9 * time.Minute)) }), b.clock)
	families, err := b.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	histograms := 0
	for _, family := range families {
		for _, m := range family.Metric {
			if m.Histogram == nil {
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
	series := func() (n int) {
		families, err := b.registry.Gather()
		must(t, err)
		for _, family := range families {
			for _, one := range family.Metric {
				if strings.Contains(one.String(), `name:"class"`) {
					n++
				}
			}
		}
		return n
	}
	fail := func(class string) {
		b.report(attempt.CountFailure{Claim: testClaim(), Class: class, Err: errors.New("no")})
		b.metrics.deleted(class, b.clock, nil)
	}
	must(t, b.resolver.classes.Add(testClass(nil)))
	fail("essd")
	one := series()
	for n := range 1_000 {
		fail(fmt.Sprint("none-", n))
	}
	if all := series(); one == 0 || all != 2*one {
		t.Errorf("%d series with classes that don't exist, %d of one that does", all, one)
	}
	b.metrics.forget("essd")
	if all := series(); all != one {
		t.Errorf("%d series are left of a class that is gone", all-one)
	}
}
