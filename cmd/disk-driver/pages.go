package main

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

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
	mux.HandleFunc("GET /readyz", cli.Answer(func(*http.Request) error { return ready() }))
	mux.HandleFunc("GET /healthz", cli.Answer(func(*http.Request) error { return nil }))
	mux.Handle("GET /metrics", promhttp.HandlerFor(prometheus.Gatherers{registry, cli.ClientGo}, promhttp.HandlerOpts{}))
	server := &http.Server{Addr: address, Handler: mux}
	return server, cli.Serve(server, "The HTTP pages end")
}
