package provisionertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/record"

	"github.com/topodisk/topodisk/test/golden"
)

// Must fails the test at an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Eventually fails the test unless something happens within half a minute.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it never happened that %s", what)
		}
	}
}

// Events returns the events that were recorded since the last call.
func Events(recorder *record.FakeRecorder) []string {
	var events []string
	for {
		select {
		case event := <-recorder.Events:
			events = append(events, event)
		default:
			return events
		}
	}
}

// Metrics holds the metrics of a registry against docs/monitoring.md, named from the package's directory, and returns every series that is not
// zero and not the library's, as name{values} without the common prefix; a histogram counts as the number of what it has seen.
func Metrics(t testing.TB, registry *prometheus.Registry, page string) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	Must(t, err)
	golden.Metrics(t, page, golden.Families(families))
	all := map[string]float64{}
	for _, family := range families {
		for _, m := range family.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetValue())
			}
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			if key := strings.TrimPrefix(family.GetName(), "topodisk_provisioner_"); value != 0 && !strings.HasPrefix(key, "controller_") {
				all[key+"{"+strings.Join(labels, ",")+"}"] = value
			}
		}
	}
	return all
}

// CheckClassSeries fails the test if classes that don't exist have series of their own after observe, or if class essd, which exists, has any
// after forget.
func CheckClassSeries(t testing.TB, registry *prometheus.Registry, observe func(class string), forget func(class string)) {
	t.Helper()
	series := func() (n int) {
		families, err := registry.Gather()
		Must(t, err)
		for _, family := range families {
			for _, one := range family.Metric {
				if strings.Contains(one.String(), `name:"class"`) {
					n++
				}
			}
		}
		return n
	}
	observe("essd")
	one := series()
	for n := range 1_000 {
		observe(fmt.Sprint("none-", n))
	}
	if all := series(); one == 0 || all != 2*one {
		t.Errorf("%d series with classes that don't exist, %d of one that does", all, one)
	}
	forget("essd")
	if all := series(); all != one {
		t.Errorf("%d series are left of a class that is gone", all-one)
	}
}
