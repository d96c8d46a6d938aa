package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/pprof"
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
	mux.HandleFunc("/healthz", cli.Answer(s.served))
	mux.HandleFunc("/healthz/leader-election", cli.Answer(func(r *http.Request) error { return errors.Join(lease.Check(r), s.served(r)) }))
	mux.HandleFunc("/readyz", cli.Answer(s.ready))
	if o.pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return s
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
