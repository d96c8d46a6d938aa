//go:build e2einstall

// The tests of this file ask what `make e2e-install` has scraped in a lab (test/install) every query of the alerts and of
// the dashboard. That target runs them, after it has scraped; without the scrapes they fail.

package chart

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunks"
	corev1 "k8s.io/api/core/v1"
)

// scrape is a line of .build/scrapes.jsonl, as test/install writes it.
type scrape struct {
	At        time.Time
	Namespace string
	Pod       string
	PodLabels map[string]string
	Container string
	Port      string
	Instance  string
	Text      string
}

// monitored are the values with all of monitoring, and the sidecars that the lab has.
const monitored = "{csiSnapshotter: {enabled: true}, monitoring: {prometheusRule: {enabled: true}, serviceMonitor: {enabled: true}}}"

// target returns the labels that Prometheus gives the series of a scrape: those of the one ServiceMonitor's Service that
// selects the Pod and has its port.
func (s scrape) target(t *testing.T, services []corev1.Service, monitors []monitoringv1.ServiceMonitor) map[string]string {
	t.Helper()
	var jobs []string
	for _, service := range services {
		selects := service.Namespace == s.Namespace
		for name, value := range service.Spec.Selector {
			selects = selects && s.PodLabels[name] == value
		}
		has := slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == s.Port })
		asked := slices.ContainsFunc(monitors, func(m monitoringv1.ServiceMonitor) bool {
			for name, value := range m.Spec.Selector.MatchLabels {
				if service.Labels[name] != value {
					return false
				}
			}
			return slices.ContainsFunc(m.Spec.Endpoints, func(e monitoringv1.Endpoint) bool { return e.Port == s.Port })
		})
		if selects && has && asked {
			jobs = append(jobs, service.Name)
		}
	}
	if len(jobs) != 1 {
		t.Fatalf("port %s of Pod %s is measured through the Services %v, want one", s.Port, s.Pod, jobs)
	}
	return map[string]string{
		"job": jobs[0], "service": jobs[0], "endpoint": s.Port, "namespace": s.Namespace, "pod": s.Pod, "container": s.Container, "instance": s.Instance,
	}
}

// scraped reads what the lab's Prometheus would have, with up, and with the name of the cluster unless it is empty. It
// returns when the last scrape was.
func scraped(t *testing.T, cluster string) (list seriesList, last time.Time) {
	t.Helper()
	file, err := os.Open(filepath.Join(repo, ".build/scrapes.jsonl"))
	if err != nil {
		t.Fatalf("run make e2e-install: %v", err)
	}
	defer file.Close()
	values := preset(t, "minimal", monitored)
	services, monitors := decode[corev1.Service](t, values, "Service"), decode[monitoringv1.ServiceMonitor](t, values, "ServiceMonitor")
	samples, times := map[string][]chunks.Sample{}, map[string]int{}
	known := map[string]labels.Labels{}
	add := func(of labels.Labels, target map[string]string, at time.Time, value float64) {
		b := labels.NewBuilder(of)
		for name, value := range target {
			if had := of.Get(name); had != "" {
				b.Set("exported_"+name, had)
			}
			b.Set(name, value)
		}
		if cluster != "" {
			b.Set("cluster", cluster)
		}
		of = b.Labels()
		known[of.String()] = of
		samples[of.String()] = append(samples[of.String()], sample{at.UnixMilli(), value})
	}
	for decoder := json.NewDecoder(file); ; {
		var s scrape
		if err := decoder.Decode(&s); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		target := s.target(t, services, monitors)
		times[s.Instance]++
		add(labels.FromStrings(model.MetricNameLabel, "up"), target, s.At, 1)
		last = s.At
		for page := textparse.NewPromParser([]byte(s.Text), labels.NewSymbolTable(), false); ; {
			entry, err := page.Next()
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("metrics of %s in %s: %v", s.Container, s.Pod, err)
			}
			if entry == textparse.EntrySeries {
				var of labels.Labels
				page.Labels(&of)
				_, _, value := page.Series()
				add(of, target, s.At, value)
			}
		}
		if s.Port == "provisioner" && !strings.Contains(s.Text, "topodisk_provisioner_audit_findings{") {
			// A stand-in: the leader's first audit is an hour after it has begun to lead.
			for _, finding := range []string{"disk_without_volume", "volume_without_disk"} {
				add(labels.FromStrings(model.MetricNameLabel, "topodisk_provisioner_audit_findings", "finding", finding), target, s.At, 0)
			}
		}
	}
	if len(times) < 2*len(controllerPod(t, values).Containers)+1 {
		t.Fatalf("only %d targets were scraped: %v", len(times), slices.Sorted(maps.Keys(times)))
	}
	for instance, n := range times {
		if n < 2 {
			t.Errorf("%s was scraped %d times, want 2 at least", instance, n)
		}
	}
	for text, of := range known {
		list = append(list, storage.NewListSeries(of, samples[text]))
	}
	return list, last
}

// finds checks that an expression has a number, and each of its selectors a series. What depends on values is taken out of
// it: comparisons, absent and unless.
func finds(t *testing.T, list seriesList, expr string, at time.Time) {
	t.Helper()
	parsed, err := parser.ParseExpr(expr)
	if err != nil {
		t.Fatal(err)
	}
	if call, is := parsed.(*parser.Call); is && call.Func.Name == "absent" {
		parsed = call.Args[0]
	}
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			// The series of a code begin with the first call that ends with it: a failure must not be needed here.
			n.LabelMatchers = slices.DeleteFunc(n.LabelMatchers, func(m *labels.Matcher) bool { return m.Name == "code" })
			if len(query(t, list, n.String(), at)) == 0 {
				t.Errorf("%s has no series, in %s", n, expr)
			}
		case *parser.BinaryExpr:
			if n.Op.IsComparisonOperator() {
				n.Op, n.ReturnBool = parser.ADD, false
			}
			if n.Op == parser.LUNLESS {
				n.Op = parser.LAND
			}
		}
		return nil
	})
	found := query(t, list, parsed.String(), at)
	for _, one := range found {
		if !math.IsNaN(one.F) {
			return
		}
	}
	t.Errorf("%s finds no number, but %v", parsed, found)
}

func TestQueriesFindWhatALabHas(t *testing.T) {
	for _, c := range []struct{ name, cluster, chosenCluster, chosenNamespace string }{
		{"one cluster, without a name", "", ".*", ".*"},
		{"a cluster by name", "lab", "lab", "kube-system"},
	} {
		t.Run(c.name, func(t *testing.T) {
			list, last := scraped(t, c.cluster)
			for _, rule := range decode[monitoringv1.PrometheusRule](t, preset(t, "minimal", monitored), "PrometheusRule")[0].Spec.Groups[0].Rules {
				finds(t, list, rule.Expr.String(), last)
			}
			chosen := strings.NewReplacer("$cluster", c.chosenCluster, "$namespace", c.chosenNamespace)
			for _, r := range rows {
				for _, p := range r.panels {
					for _, q := range p.queries {
						expr, err := ofVariables(q[0])
						if err != nil {
							t.Fatal(err)
						}
						finds(t, list, chosen.Replace(expr), last)
					}
				}
			}
		})
	}
}
