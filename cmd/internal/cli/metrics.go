package cli

import (
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
	_ "k8s.io/component-base/metrics/prometheus/clientgo/leaderelection" // registers leader_election_* for client-go
	_ "k8s.io/component-base/metrics/prometheus/restclient"              // registers rest_client_*
	_ "k8s.io/component-base/metrics/prometheus/workqueue"               // registers workqueue_*

	"k8s.io/component-base/metrics/legacyregistry"
)

// Revision is the commit that the program was built from, stamped by the
// linker; empty: what go build has noted.
var Revision string

// NewRegistry returns a registry with what every program says of itself: the
// build, the Go runtime and the process.
func NewRegistry(version string) *prometheus.Registry {
	registry := prometheus.NewRegistry()
	build := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "topodisk_build_info",
		Help:        "Version of the program; always 1.",
		ConstLabels: prometheus.Labels{"version": version, "revision": revision(), "go_version": runtime.Version()},
	}, func() float64 { return 1 })
	registry.MustRegister(build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

func revision() string {
	if Revision != "" {
		return Revision
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return "unknown"
}

// ofClientGo are the metrics of client-go that are served, those that tell of
// its queues, elections and requests.
var ofClientGo = []string{
	"workqueue_", "leader_election_", "rest_client_requests_total", "rest_client_request_retries_total",
	"rest_client_request_duration_seconds", "rest_client_rate_limiter_duration_seconds",
}

// ClientGo gathers the metrics of client-go, without histograms of what has
// never happened.
var ClientGo = prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
	all, err := legacyregistry.DefaultGatherer.Gather()
	var kept []*dto.MetricFamily
	for _, family := range all {
		if !slices.ContainsFunc(ofClientGo, func(prefix string) bool { return strings.HasPrefix(family.GetName(), prefix) }) {
			continue
		}
		family.Metric = slices.DeleteFunc(family.Metric, func(m *dto.Metric) bool {
			return m.Histogram != nil && m.Histogram.GetSampleCount() == 0
		})
		if len(family.Metric) > 0 {
			kept = append(kept, family)
		}
	}
	return kept, err
})
