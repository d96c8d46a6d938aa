package main

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/cmd/internal/cli"
)

// readiness says what the process waits for before it can do its work.
type readiness struct {
	mu      sync.Mutex
	waiting map[string]error // by what is waited for
}

// await notes what is waited for; nil: it is there.
func (r *readiness) await(what string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting == nil {
		r.waiting = map[string]error{}
	}
	r.waiting[what] = err
}

// check returns why the process isn't ready; nil if it is.
func (r *readiness) check() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, what := range slices.Sorted(maps.Keys(r.waiting)) {
		if err := r.waiting[what]; err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
	}
	return errors.Join(errs...)
}

// servePages answers /healthz (is the process alive, whatever ECS does),
// /readyz (is there all that it needs; why not) and /metrics. Without an
// address it serves nothing.
func servePages(address string, registry *prometheus.Registry, ready func() error) (*http.Server, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.Handle("GET /metrics", promhttp.HandlerFor(prometheus.Gatherers{registry, cli.ClientGo}, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	if address == "" {
		return server, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--http-endpoint=%s: %w", address, err)
	}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			klog.ErrorS(err, "The HTTP pages end", "address", address)
		}
	}()
	return server, nil
}
