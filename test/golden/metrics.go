package golden

import (
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Scrape returns the metrics that a program serves, by name.
func Scrape(t testing.TB, url string) map[string]*dto.MetricFamily {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(answer.Body)
		t.Fatalf("%s answers %d: %s", url, answer.StatusCode, text)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	return families
}

// Families returns what a registry has gathered, by name.
func Families(gathered []*dto.MetricFamily) map[string]*dto.MetricFamily {
	byName := map[string]*dto.MetricFamily{}
	for _, family := range gathered {
		byName[family.GetName()] = family
	}
	return byName
}

// documentedMetric is a row of the page's tables of metrics.
type documentedMetric struct {
	kind   string
	labels []string
}

// documentedLabel is a row of the page's table of labels.
type documentedLabel struct {
	values []string // that are allowed
	open   bool     // others are, too
}

var code = regexp.MustCompile("`([^`]+)`")

func codes(cell string) (words []string) {
	for _, match := range code.FindAllStringSubmatch(cell, -1) {
		words = append(words, match[1])
	}
	return words
}

// metricsPage reads the tables of docs/monitoring.md: metrics by name, labels by "label" or "label of metric".
func metricsPage(t testing.TB, page string) (map[string]documentedMetric, map[string]documentedLabel) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	metrics, labels := map[string]documentedMetric{}, map[string]documentedLabel{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		first := codes(cells[0])
		switch {
		case len(first) == 0:
		case len(cells) == 4:
			metrics[first[0]] = documentedMetric{strings.TrimSpace(cells[1]), codes(cells[2])}
		case len(cells) == 2:
			// The names of kinds of errors stand in another page.
			labels[strings.Join(first, " of ")] = documentedLabel{codes(cells[1]),
				strings.HasPrefix(strings.TrimSpace(cells[1]), "the ") || strings.Contains(cells[1], "](")}
		}
	}
	if len(metrics) < 20 || len(labels) < 8 {
		t.Fatalf("%s has tables of only %d metrics and %d labels", page, len(metrics), len(labels))
	}
	return metrics, labels
}

// clashing are labels that Prometheus gives to what it scrapes.
var clashing = []string{"job", "instance", "namespace", "pod", "container", "endpoint", "service"}

// Metrics holds topodisk's own metrics that a program serves against docs/monitoring.md: each has a row there with its
// type, its labels and their values.
func Metrics(t testing.TB, page string, served map[string]*dto.MetricFamily) {
	t.Helper()
	metrics, labels := metricsPage(t, page)
	for name, family := range served {
		if !strings.HasPrefix(name, "topodisk_") {
			continue
		}
		row, found := metrics[name]
		if !found {
			t.Errorf("%s has no row for %s", page, name)
			continue
		}
		if kind := strings.ToLower(family.GetType().String()); kind != row.kind {
			t.Errorf("%s: %s is a %s, the page says %s", page, name, kind, row.kind)
		}
		for _, m := range family.Metric {
			var names []string
			for _, l := range m.Label {
				names = append(names, l.GetName())
				values, found := labels[l.GetName()+" of "+name]
				if !found {
					values, found = labels[l.GetName()]
				}
				if !found || !values.open && !slices.Contains(values.values, l.GetValue()) {
					t.Errorf("%s: %s has %s=%q, which the page does not name", page, name, l.GetName(), l.GetValue())
				}
				if slices.Contains(clashing, l.GetName()) {
					t.Errorf("%s has the label %s, which Prometheus gives to what it scrapes", name, l.GetName())
				}
			}
			slices.Sort(names)
			if want := slices.Sorted(slices.Values(row.labels)); !slices.Equal(names, want) {
				t.Errorf("%s: %s has labels %q, the page says %q", page, name, names, want)
			}
		}
	}
}
