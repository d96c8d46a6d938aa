package chart

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/prometheus/promql/parser"
	corev1 "k8s.io/api/core/v1"
)

var metricName = regexp.MustCompile(`topodisk_[a-z_]+`)

// sourceMetrics are the names of the metrics that the programs register.
func sourceMetrics(t *testing.T) []string {
	t.Helper()
	named := regexp.MustCompile(`Name: +"(topodisk_[a-z_]+)"`)
	var names []string
	for _, dir := range []string{"cmd", "diskdriver", "internal", "provisioner"} {
		err := filepath.WalkDir(filepath.Join(repo, dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, match := range named.FindAllStringSubmatch(string(text), -1) {
				names = append(names, match[1])
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(names) < 15 {
		t.Fatalf("only these metrics were found: %v", names)
	}
	slices.Sort(names)
	return names
}

// known returns the metric that a series is of: a histogram has three.
func known(names []string, series string) bool {
	for _, end := range []string{"", "_bucket", "_count", "_sum"} {
		if slices.Contains(names, strings.TrimSuffix(series, end)) && strings.HasSuffix(series, end) {
			return true
		}
	}
	return false
}

// series are the names that an expression of PromQL asks for.
func series(t *testing.T, expr string) (names []string) {
	t.Helper()
	parsed, err := parser.ParseExpr(expr)
	if err != nil {
		t.Errorf("Prometheus cannot read %s: %v", expr, err)
		return nil
	}
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		if selector, is := node.(*parser.VectorSelector); is {
			names = append(names, selector.Name)
		}
		return nil
	})
	return names
}

// An alert on a metric that nobody has would never fire.
func TestAlertsAskForMetricsThatExistAndHaveARunbook(t *testing.T) {
	rules := decode[monitoringv1.PrometheusRule](t, preset(t, "full", ""), "PrometheusRule")
	if len(rules) != 1 || len(rules[0].Spec.Groups) != 1 || len(rules[0].Spec.Groups[0].Rules) < 10 {
		t.Fatalf("PrometheusRules: %v", rules)
	}
	names := sourceMetrics(t)
	runbooks, err := os.ReadFile(filepath.Join(repo, "docs/monitoring.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range rules[0].Spec.Groups[0].Rules {
		asked := series(t, rule.Expr.String())
		if len(asked) == 0 {
			t.Errorf("%s asks for no metric: %s", rule.Alert, rule.Expr.String())
		}
		for _, one := range asked {
			if one != "up" && !known(append(libraryMetrics, names...), one) { // up is Prometheus' own
				t.Errorf("%s asks for %s, which nobody registers", rule.Alert, one)
			}
		}
		if rule.Annotations["summary"] == "" || !slices.Contains([]string{"critical", "warning", "info"}, rule.Labels["severity"]) {
			t.Errorf("%s has no summary or no severity", rule.Alert)
		}
		if d := rule.Annotations["description"]; !strings.Contains(d, "{{ $labels.namespace }}") {
			t.Errorf("%s: the description %q does not say which installation it is about", rule.Alert, d)
		}
		if want := "https://runbooks.example.com/" + strings.ToLower(rule.Alert); rule.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook %s, want %s", rule.Alert, rule.Annotations["runbook_url"], want)
		}
		if !strings.Contains(string(runbooks), "\n### "+rule.Alert+"\n") {
			t.Errorf("docs/monitoring.md has no runbook %s", rule.Alert)
		}
	}
	for _, heading := range regexp.MustCompile(`(?m)^### (Topodisk\w+)$`).FindAllStringSubmatch(string(runbooks), -1) {
		if !slices.ContainsFunc(rules[0].Spec.Groups[0].Rules, func(r monitoringv1.Rule) bool { return r.Alert == heading[1] }) {
			t.Errorf("docs/monitoring.md has a runbook of %s, which is no alert", heading[1])
		}
	}
}

// closed are the values of labels that docs/monitoring.md lists in full, by "label of metric" or "label".
func closed(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(repo, "docs/monitoring.md"))
	if err != nil {
		t.Fatal(err)
	}
	code, values := regexp.MustCompile("`([^`]+)`"), map[string][]string{}
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 2 || !strings.HasPrefix(strings.TrimSpace(cells[0]), "`") || strings.HasPrefix(strings.TrimSpace(cells[1]), "the ") {
			continue
		}
		var of []string
		for _, match := range code.FindAllStringSubmatch(cells[0], -1) {
			of = append(of, match[1])
		}
		for _, match := range code.FindAllStringSubmatch(cells[1], -1) {
			values[strings.Join(of, " of ")] = append(values[strings.Join(of, " of ")], match[1])
		}
	}
	if len(values) < 8 {
		t.Fatalf("only these labels were found: %v", values)
	}
	return values
}

// An alert on a value that no series has would never fire, as one on result="unknown-outcome" did not.
func TestAlertsAndDashboardAskForValuesThatExist(t *testing.T) {
	var exprs []string
	for _, rule := range decode[monitoringv1.PrometheusRule](t, preset(t, "full", ""), "PrometheusRule")[0].Spec.Groups[0].Rules {
		exprs = append(exprs, rule.Expr.String())
	}
	for _, r := range rows {
		for _, p := range r.panels {
			for _, q := range p.queries {
				exprs = append(exprs, q[0])
			}
		}
	}
	kinds, err := os.ReadFile(filepath.Join(repo, "diskdriver/disk/error.go"))
	if err != nil {
		t.Fatal(err)
	}
	values := closed(t)
	for _, expr := range exprs {
		parsed, err := parser.ParseExpr(expr)
		if err != nil {
			t.Fatal(err)
		}
		parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
			selector, is := node.(*parser.VectorSelector)
			if !is {
				return nil
			}
			for _, m := range selector.LabelMatchers {
				allowed, listed := values[m.Name+" of "+selector.Name]
				if !listed {
					allowed, listed = values[m.Name]
				}
				for _, value := range strings.Split(m.Value, "|") {
					kind := `"` + strings.ReplaceAll(value, "_", " ") + `"` // results of calls to ECS are kinds of errors
					if listed && !slices.Contains(allowed, value) && (m.Name != "result" || !strings.Contains(string(kinds), kind)) {
						t.Errorf("%s asks for %s=%q, which docs/monitoring.md does not list", expr, m.Name, value)
					}
				}
			}
			return nil
		})
	}
}

// libraryMetrics are those of csi-attacher's queue and of the provisioner library's names, which the lab's scrape has
// (TestQueriesFindWhatALabHas).
var libraryMetrics = []string{
	"workqueue_depth", "workqueue_queue_duration_seconds",
	"controller_persistentvolumeclaim_provision_total", "controller_persistentvolumeclaim_provision_failed_total",
}

func TestEveryMetricIsExplainedAndOnTheDashboard(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(repo, "docs/monitoring.md"))
	if err != nil {
		t.Fatal(err)
	}
	names := sourceMetrics(t)
	shown := shownMetrics(t)
	for _, name := range names {
		if !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/monitoring.md does not explain %s", name)
		}
		if !slices.ContainsFunc(shown, func(one string) bool { return known([]string{name}, one) }) {
			t.Errorf("the dashboard does not show %s", name)
		}
	}
	for _, name := range metricName.FindAllString(string(page), -1) {
		if !slices.Contains(names, name) {
			t.Errorf("docs/monitoring.md speaks of %s, which nobody registers", name)
		}
	}
	for _, one := range shown {
		if !known(append(libraryMetrics, names...), one) {
			t.Errorf("the dashboard asks for %s, which nobody registers", one)
		}
	}
}

// shownMetrics are the series that the dashboard asks for.
func shownMetrics(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repo, chartDir, "files/dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			if !strings.Contains(target.Expr, `cluster=~"$cluster"`) || !strings.Contains(target.Expr, `namespace=~"$namespace"`) {
				t.Errorf("the dashboard's variables don't restrict %s", target.Expr)
			}
			names = append(names, series(t, target.Expr)...)
		}
	}
	return names
}

func TestDashboardComesAsAConfigMap(t *testing.T) {
	maps := decode[corev1.ConfigMap](t, preset(t, "full", ""), "ConfigMap")
	if len(maps) != 1 {
		t.Fatalf("%d ConfigMaps", len(maps))
	}
	var board map[string]any
	if err := json.Unmarshal([]byte(maps[0].Data["topodisk.json"]), &board); err != nil || board["title"] != "topodisk" || maps[0].Labels["grafana"] != "main" {
		t.Errorf("ConfigMap %s: %v, labels %v", maps[0].Name, err, maps[0].Labels)
	}
}

// Every port with metrics is asked, and its Service leads to the Pods.
func TestEveryPortIsMeasured(t *testing.T) {
	values := preset(t, "full", "")
	want := map[string][]string{"topodisk-node": {"node"}}
	for _, c := range controllerPod(t, values).Containers {
		want["topodisk-controller"] = append(want["topodisk-controller"], c.Ports[0].Name)
	}
	got, services := map[string][]string{}, map[string][]string{}
	for _, m := range decode[monitoringv1.ServiceMonitor](t, values, "ServiceMonitor") {
		for _, e := range m.Spec.Endpoints {
			got[m.Name] = append(got[m.Name], e.Port)
		}
		if m.Labels["release"] != "prometheus" {
			t.Errorf("labels of %s: %v", m.Name, m.Labels)
		}
	}
	for _, s := range decode[corev1.Service](t, values, "Service") {
		for _, p := range s.Spec.Ports {
			services[s.Name] = append(services[s.Name], p.Name)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ServiceMonitors (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, services); diff != "" {
		t.Errorf("Services (-want +got):\n%s", diff)
	}
}
