package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"time"

	csimetrics "github.com/kubernetes-csi/csi-lib-utils/metrics"
	"k8s.io/klog/v2"

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
		return &server{}
	}
	mux := http.NewServeMux()
	s := &server{http: &http.Server{Addr: o.httpEndpoint, Handler: mux, ReadHeaderTimeout: 5 * time.Second}}
	manager.RegisterToServer(mux, o.metricsPath)
	lease.WatchHealth()
	mux.HandleFunc("/healthz", answer(s.served))
	mux.HandleFunc("/healthz/leader-election", answer(func(r *http.Request) error { return errors.Join(lease.Check(r), s.served(r)) }))
	mux.HandleFunc("/readyz", answer(s.ready))
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

func answer(check func(*http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := check(r); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
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

func (s *server) start() error {
	if s.http == nil {
		return nil
	}
	listener, err := net.Listen("tcp", s.http.Addr)
	if err != nil {
		return fmt.Errorf("--http-endpoint=%s: %w", s.http.Addr, err)
	}
	go func() {
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			klog.ErrorS(err, "The HTTP endpoint ends", "address", s.http.Addr)
		}
	}()
	return nil
}

func (s *server) stop() {
	if s.http != nil {
		_ = s.http.Close()
	}
}
