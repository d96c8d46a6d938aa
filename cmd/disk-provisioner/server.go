package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/pprof"
	"path"
	"slices"
	"strings"
	"sync/atomic"

	csimetrics "github.com/kubernetes-csi/csi-lib-utils/metrics"

	"github.com/topodisk/topodisk/cmd/internal/cli"
	"github.com/topodisk/topodisk/internal/leader"
)

// server serves /metrics, /healthz (a leader recovers and works off its queues),
// /healthz/leader-election (and renews its Lease) and /readyz (the driver answers, the
// caches are full, and the recovery does not fail).
type server struct {
	http      *http.Server
	probe     atomic.Pointer[func(context.Context) (bool, error)]
	filled    atomic.Bool
	healthy   atomic.Pointer[func() error]
	recovered atomic.Pointer[func() error]
}

func newServer(o *options, manager csimetrics.CSIMetricsManager, lease *leader.Lease) *server {
	if o.httpEndpoint == "" {
		return &server{http: &http.Server{}}
	}
	mux := http.NewServeMux()
	s := &server{http: &http.Server{Addr: o.httpEndpoint, Handler: mux}}
	manager.RegisterToServer(mux, o.metricsPath)
	lease.WatchHealth()
	for path, page := range s.pages(lease, o.pprof) {
		mux.HandleFunc(path, page)
	}
	return s
}

// pages returns the pages by their paths, but for the metrics.
func (s *server) pages(lease *leader.Lease, profiles bool) map[string]http.HandlerFunc {
	pages := map[string]http.HandlerFunc{
		"/healthz":                 cli.Answer(s.served),
		"/healthz/leader-election": cli.Answer(func(r *http.Request) error { return errors.Join(lease.Check(r), s.served(r)) }),
		"/readyz":                  cli.Answer(s.ready),
	}
	if profiles {
		maps.Copy(pages, map[string]http.HandlerFunc{
			"/debug/pprof/":        pprof.Index,
			"/debug/pprof/cmdline": pprof.Cmdline,
			"/debug/pprof/profile": pprof.Profile,
			"/debug/pprof/symbol":  pprof.Symbol,
			"/debug/pprof/trace":   pprof.Trace,
		})
	}
	return pages
}

// checkMetricsPath returns an error for a path that http.ServeMux does not take, or not beside the other pages.
func (o *options) checkMetricsPath() error {
	others := slices.Sorted(maps.Keys((&server{}).pages(nil, o.pprof)))
	clean := path.Clean(o.metricsPath)
	if !strings.HasPrefix(o.metricsPath, "/") || o.metricsPath != clean && o.metricsPath != clean+"/" ||
		strings.ContainsAny(o.metricsPath, " \t{}%") || slices.Contains(others, o.metricsPath) {
		return fmt.Errorf("--metrics-path=%s is not allowed: allowed is a path such as /metrics, without spaces, braces and percent signs, other than %s",
			o.metricsPath, strings.Join(others, ", "))
	}
	return nil
}

func (s *server) setHealthy(check func() error) { s.healthy.Store(&check) }

// setRecovered sets the check of the recovery.
func (s *server) setRecovered(check func() error) { s.recovered.Store(&check) }

// served returns an error if this process leads and does not work.
func (s *server) served(*http.Request) error {
	check := s.healthy.Load()
	if check == nil {
		return nil
	}
	return (*check)()
}

// setDriver sets the probe of the driver.
func (s *server) setDriver(probe func(context.Context) (bool, error)) { s.probe.Store(&probe) }

// setFilled notes that the caches are full.
func (s *server) setFilled() { s.filled.Store(true) }

func (s *server) ready(r *http.Request) error {
	probe := s.probe.Load()
	if probe == nil {
		return errors.New("the driver's socket has not answered yet")
	}
	ready, err := (*probe)(r.Context())
	switch {
	case err != nil:
		return fmt.Errorf("the driver does not answer: %w", err)
	case !ready:
		return errors.New("the driver answers that it is not ready; its log says why")
	}
	if check := s.recovered.Load(); check != nil {
		if err := (*check)(); err != nil {
			return err
		}
	}
	if !s.filled.Load() {
		return errors.New("the caches are not full: the API server has not answered with all that there is; the log says what it refuses")
	}
	return nil
}
