package chart

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// seriesList is a Prometheus' storage in memory.
type seriesList []storage.Series

func (l seriesList) Querier(int64, int64) (storage.Querier, error) { return l, nil }
func (seriesList) Close() error                                    { return nil }

func (seriesList) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (seriesList) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

func (l seriesList) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	var found seriesList
	for _, one := range l {
		of := one.Labels()
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(of.Get(m.Name)) }) {
			found = append(found, one)
		}
	}
	return &seriesSet{rest: found}
}

// recorded reads series in Prometheus' own notation for tests, one sample every half minute from the epoch on.
func recorded(t *testing.T, texts []string) (list seriesList) {
	t.Helper()
	for _, text := range texts {
		of, values, err := parser.ParseSeriesDesc(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		var samples []chunks.Sample
		for n, value := range values {
			samples = append(samples, sample{int64(n) * every.Milliseconds(), value.Value})
		}
		list = append(list, storage.NewListSeries(of, samples))
	}
	return list
}

const every = 30 * time.Second

type seriesSet struct {
	rest seriesList
	now  storage.Series
}

func (s *seriesSet) Next() bool {
	if len(s.rest) == 0 {
		return false
	}
	s.now, s.rest = s.rest[0], s.rest[1:]
	return true
}
func (s *seriesSet) At() storage.Series                { return s.now }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

type sample struct {
	at    int64
	value float64
}

func (s sample) ST() int64                     { return 0 }
func (s sample) T() int64                      { return s.at }
func (s sample) F() float64                    { return s.value }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

// query returns what an expression finds in the series at a moment.
func query(t *testing.T, list seriesList, expr string, at time.Time) promql.Vector {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: math.MaxInt32, Timeout: time.Minute})
	query, err := engine.NewInstantQuery(t.Context(), list, nil, expr, at)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	defer query.Close()
	vector, err := query.Exec(t.Context()).Vector()
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return slices.Clone(vector)
}

// firing returns how many alerts an expression has after two hours of the series.
func firing(t *testing.T, expr string, series ...string) int {
	t.Helper()
	return len(query(t, recorded(t, series), expr, time.Unix(0, 0).Add(2*time.Hour)))
}

// Every alert fires when it is to, by Prometheus' own engine, and not otherwise. x240 is two hours.
func TestAlertsFireWhenTheyAreTo(t *testing.T) {
	expressions := map[string]string{}
	values := preset(t, "minimal", "{monitoring: {prometheusRule: {enabled: true}}}")
	for _, rule := range decode[monitoringv1.PrometheusRule](t, values, "PrometheusRule")[0].Spec.Groups[0].Rules {
		expressions[rule.Alert] = rule.Expr.String()
	}
	tried := map[string]int{}
	for _, c := range []struct {
		name, alert string
		series      []string
		fires       int
	}{
		{"no driver", "TopodiskAbsent", nil, 1},
		{"a driver", "TopodiskAbsent", []string{`topodisk_driver_ready{job="topodisk-controller",namespace="kube-system"} 0x240`}, 0},
		{"another installation's driver", "TopodiskAbsent", []string{`topodisk_driver_ready{job="pilot-topodisk-controller",namespace="kube-system"} 1x240`}, 1},
		{"another namespace's driver", "TopodiskAbsent", []string{`topodisk_driver_ready{job="topodisk-controller",namespace="pilot"} 1x240`}, 1},
		{"no replica is ready", "TopodiskNotReady", []string{`topodisk_driver_ready{pod="a"} 0x240`, `topodisk_driver_ready{pod="b"} 0x240`}, 1},
		{"one replica is ready", "TopodiskNotReady", []string{`topodisk_driver_ready{pod="a"} 0x240`, `topodisk_driver_ready{pod="b"} 1x240`}, 0},
		{"one cluster of two", "TopodiskNotReady", []string{`topodisk_driver_ready{cluster="a"} 0x240`, `topodisk_driver_ready{cluster="b"} 1x240`}, 1},
		{"one installation of two", "TopodiskNotReady", []string{`topodisk_driver_ready{job="a"} 0x240`, `topodisk_driver_ready{job="b"} 1x240`}, 1},
		{"plugins that don't answer", "TopodiskNodeDown",
			[]string{`up{job="topodisk-node",pod="a"} 0x240`, `up{job="topodisk-node",pod="b"} 0x240`, `up{job="topodisk-node",pod="c"} 1x240`}, 2},
		{"a plugin that isn't registered", "TopodiskNodeDown", []string{`up{job="topodisk-node",pod="a"} 1x240`, `topodisk_node_registered{pod="a"} 0x240`}, 1},
		{"plugins that work", "TopodiskNodeDown",
			[]string{`up{job="topodisk-node",pod="a"} 1x240`, `topodisk_node_registered{pod="a"} 1x240`, `up{job="another"} 0x240`}, 0},
		{"another provisioner", "TopodiskOtherDriver",
			[]string{`topodisk_provisioner_other_driver{kind="provisioner",pod="a"} 0x239 1`, `topodisk_provisioner_other_driver{kind="provisioner",pod="b"} 1x240`}, 1},
		{"no other driver", "TopodiskOtherDriver", []string{`topodisk_provisioner_other_driver{kind="csi_driver"} 0x240`}, 0},
		{"credentials can't be read", "TopodiskCredentialsFailing", []string{`topodisk_ecs_credentials_failing{pod="a"} 1x240`}, 1},
		{"credentials are read", "TopodiskCredentialsFailing", []string{`topodisk_ecs_credentials_failing{pod="a"} 0x240`}, 0},
		{"credentials end in ten minutes", "TopodiskCredentialsEnding", []string{"topodisk_ecs_credentials_expiry_timestamp_seconds 7800x240"}, 1},
		{"credentials end in an hour", "TopodiskCredentialsEnding", []string{"topodisk_ecs_credentials_expiry_timestamp_seconds 10800x240"}, 0},
		{"credentials without an end", "TopodiskCredentialsEnding", []string{"topodisk_ecs_credentials_expiry_timestamp_seconds 0x240"}, 0},
		{"a quarter is throttled", "TopodiskThrottled", []string{`topodisk_ecs_requests_total{action="a",result="throttled"} 0+10x240`, `topodisk_ecs_requests_total{action="a",result="ok"} 0+30x240`}, 1},
		{"little is throttled", "TopodiskThrottled", []string{`topodisk_ecs_requests_total{action="a",result="throttled"} 0+1x240`, `topodisk_ecs_requests_total{action="a",result="ok"} 0+30x240`}, 0},
		{"answers are lost", "TopodiskCloudUnclear", []string{`topodisk_ecs_requests_total{action="a",result="unknown_outcome"} 0+1x240`}, 1},
		{"answers come", "TopodiskCloudUnclear", []string{`topodisk_ecs_requests_total{action="a",result="ok"} 0+100x240`, `topodisk_ecs_requests_total{action="a",result="unknown_outcome"} 5x240`}, 0},
		{"no stock", "TopodiskSoldOut", []string{`topodisk_provisioner_reschedules_total{reason="out_of_stock"} 0x200 1x40`}, 1},
		{"nodes that go", "TopodiskSoldOut", []string{`topodisk_provisioner_reschedules_total{reason="out_of_stock"} 0x240`, `topodisk_provisioner_reschedules_total{reason="node_gone"} 0+1x240`}, 0},
		{"a leader that can't begin", "TopodiskCannotBegin", []string{`topodisk_provisioner_recovery_failures_total{step="journal"} 0+1x240`}, 1},
		{"one failure at the beginning", "TopodiskCannotBegin", []string{`topodisk_provisioner_recovery_failures_total{step="caches"} 0x235 1x5`}, 0},
		{"an unknown outcome", "TopodiskOutcomeUnknown", []string{"topodisk_provisioner_creates_unknown 1x240"}, 1},
		{"known outcomes", "TopodiskOutcomeUnknown", []string{"topodisk_provisioner_creates_unknown 0x240"}, 0},
		{"slow claims", "TopodiskClaimsSlow", []string{`topodisk_provisioner_provision_duration_seconds_bucket{le="120"} 0+1x240`, `topodisk_provisioner_provision_duration_seconds_bucket{le="300"} 0+2x240`, `topodisk_provisioner_provision_duration_seconds_bucket{le="+Inf"} 0+2x240`}, 1},
		{"fast claims", "TopodiskClaimsSlow", []string{`topodisk_provisioner_provision_duration_seconds_bucket{le="5"} 0+2x240`, `topodisk_provisioner_provision_duration_seconds_bucket{le="+Inf"} 0+2x240`}, 0},
		{"claims that all fail", "TopodiskProvisioningFails", []string{`controller_persistentvolumeclaim_provision_failed_total{job="topodisk-controller",namespace="kube-system",class="a"} 0x100 1+1x140`, `controller_persistentvolumeclaim_provision_total{job="topodisk-controller",namespace="kube-system",class="a"} 5x240`, `controller_persistentvolumeclaim_provision_total{job="topodisk-controller",namespace="kube-system",class="b"} 0+1x240`}, 1},
		{"a claim that is retried every five minutes", "TopodiskProvisioningFails", []string{`controller_persistentvolumeclaim_provision_failed_total{job="topodisk-controller",namespace="kube-system",class="a"} 0x210 1x9 2x9 3x9`}, 1},
		{"claims of which one fails", "TopodiskProvisioningFails", []string{`controller_persistentvolumeclaim_provision_failed_total{job="topodisk-controller",namespace="kube-system",class="a"} 0+1x240`, `controller_persistentvolumeclaim_provision_total{job="topodisk-controller",namespace="kube-system",class="a"} 0+1x240`}, 0},
		{"claims that failed once", "TopodiskProvisioningFails", []string{`controller_persistentvolumeclaim_provision_failed_total{job="topodisk-controller",namespace="kube-system",class="a"} 7x240`}, 0},
		{"claims of another driver", "TopodiskProvisioningFails", []string{`controller_persistentvolumeclaim_provision_failed_total{job="csi-nas",namespace="kube-system",class="a"} 0+1x240`}, 0},
		{"a disk that can't be deleted", "TopodiskDeletionsPending", []string{`topodisk_provisioner_oldest_pending_deletion_seconds{pod="a"} 0+30x240`, `topodisk_provisioner_oldest_pending_deletion_seconds{pod="b"} 0+30x240`}, 1},
		{"disks that are deleted", "TopodiskDeletionsPending", []string{`topodisk_provisioner_oldest_pending_deletion_seconds 600x240`}, 0},
		{"volumes aren't saved", "TopodiskVolumesNotSaved", []string{"topodisk_provisioner_volume_save_failures_total 0+1x240"}, 1},
		{"volumes are saved", "TopodiskVolumesNotSaved", []string{"topodisk_provisioner_volume_save_failures_total 3x240"}, 0},
		{"a journal that fills", "TopodiskJournalLarge", []string{`topodisk_provisioner_journal_size_bytes{pod="a"} 600x240`, `topodisk_provisioner_journal_limit_bytes{pod="a"} 1000x240`, `topodisk_provisioner_journal_limit_bytes{pod="b"} 1000x240`}, 1},
		{"a journal with room", "TopodiskJournalLarge",
			[]string{"topodisk_provisioner_journal_size_bytes 400x240", "topodisk_provisioner_journal_limit_bytes 1000x240"}, 0},
		{"orphans", "TopodiskAuditFindings", []string{`topodisk_provisioner_audit_findings{finding="disk_without_volume"} 2x240`, `topodisk_provisioner_audit_findings{finding="volume_without_disk"} 1x240`}, 2},
		{"volumes that Retain has kept", "TopodiskAuditFindings", []string{`topodisk_provisioner_audit_findings{finding="disk_without_volume"} 0x240`, `topodisk_provisioner_audit_findings{finding="volume_without_claim"} 5x240`}, 0},
		{"a stuck attach", "TopodiskAttachStuck", []string{`topodisk_ecs_oldest_pending_change_seconds{pod="a"} 0+30x240`, `topodisk_ecs_oldest_pending_change_seconds{pod="b"} 0x240`}, 1},
		{"attaches that end", "TopodiskAttachStuck", []string{"topodisk_ecs_oldest_pending_change_seconds 20x240"}, 0},
		{"a long queue", "TopodiskAttachQueueLong", []string{`topodisk_ecs_instance_operations{operation="attach",state="waiting"} 101x240`}, 1},
		{"many that run", "TopodiskAttachQueueLong", []string{`topodisk_ecs_instance_operations{operation="attach",state="running"} 101x240`, `topodisk_ecs_instance_operations{operation="attach",state="waiting"} 3x240`}, 0},
		{"detaches that hang", "TopodiskAttachmentsPending", []string{`topodisk_csi_oldest_pending_attachment_seconds{pod="a",operation="detach"} 0+60x240`, `topodisk_csi_oldest_pending_attachment_seconds{pod="a",operation="attach"} 5x240`}, 1},
		{"detaches that end", "TopodiskAttachmentsPending", []string{`topodisk_csi_oldest_pending_attachment_seconds{operation="detach"} 300x240`}, 0},
		{"no worker for attaches", "TopodiskAttacherBusy", []string{`workqueue_queue_duration_seconds_bucket{name="csi-attacher-va",le="10"} 0+90x240`, `workqueue_queue_duration_seconds_bucket{name="csi-attacher-va",le="100"} 0+100x240`, `workqueue_queue_duration_seconds_bucket{name="csi-attacher-va",le="+Inf"} 0+100x240`}, 1},
		{"a worker for everybody", "TopodiskAttacherBusy", []string{`workqueue_queue_duration_seconds_bucket{name="csi-attacher-va",le="1"} 0+100x240`, `workqueue_queue_duration_seconds_bucket{name="csi-attacher-va",le="+Inf"} 0+100x240`, `workqueue_queue_duration_seconds_bucket{name="another",le="+Inf"} 0+100x240`}, 0},
		{"a panic", "TopodiskPanic", []string{"topodisk_csi_panics_total 0x200 1x40"}, 1},
		{"no panic", "TopodiskPanic", []string{"topodisk_csi_panics_total 1x240"}, 0},
		{"calls that fail", "TopodiskCallsFail", []string{`topodisk_csi_call_duration_seconds_count{method="m",code="Internal"} 0+1x240`}, 1},
		{"calls that are repeated", "TopodiskCallsFail", []string{`topodisk_csi_call_duration_seconds_count{method="m",code="Aborted"} 0+9x240`, `topodisk_csi_call_duration_seconds_count{method="m",code="Internal"} 1x240`}, 0},
	} {
		t.Run(c.alert+" "+c.name, func(t *testing.T) {
			if got := firing(t, expressions[c.alert], c.series...); got != c.fires {
				t.Errorf("%d alerts of %s, want %d", got, expressions[c.alert], c.fires)
			}
		})
		tried[c.alert] |= map[bool]int{false: 1, true: 2}[c.fires > 0]
	}
	for alert := range expressions {
		if tried[alert] != 3 {
			t.Errorf("%s is not tried with series that it fires for and with series that it doesn't", alert)
		}
	}
}

// A reader who doesn't know the metrics knows what each graph shows.
func TestEveryPanelIsDescribed(t *testing.T) {
	for _, r := range rows {
		for _, p := range r.panels {
			if len(strings.Fields(p.description)) < 5 || !strings.HasSuffix(p.description, ".") {
				t.Errorf("%s / %s has the description %q", r.title, p.title, p.description)
			}
		}
	}
}
