package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	csimetrics "github.com/kubernetes-csi/csi-lib-utils/metrics"
)

// Where profiles are served, their paths are taken, too.
func TestTheMetricsHaveAPathOfTheirOwn(t *testing.T) {
	for _, path := range []string{"/", "/m", "/m/", "/healthz/m", "/debug/pprof/", "/debug/pprof/trace", "/debug/pprof/m"} {
		for _, profiles := range []bool{false, true} {
			args := []string{"--http-endpoint=127.0.0.1:0", "--metrics-path=" + path, fmt.Sprint("--enable-pprof=", profiles)}
			o, err := parse(args, io.Discard)
			if taken := profiles && (path == "/debug/pprof/" || path == "/debug/pprof/trace"); (err != nil) != taken {
				t.Errorf("%q: %v", args, err)
			}
			if err == nil {
				newServer(o, csimetrics.NewCSIMetricsManagerForSidecar("driver"), o.lease())
			}
		}
	}
}

func TestHealthOverHTTP(t *testing.T) {
	o := parsed(t, "--http-endpoint=127.0.0.1:0", "--leader-election")
	s := newServer(o, csimetrics.NewCSIMetricsManagerForSidecar("driver"), o.lease())
	expect := func(path string, status int, text string) {
		t.Helper()
		answer, request := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil)
		request.RemoteAddr = "127.0.0.1:1234" // others are not told why
		s.http.Handler.ServeHTTP(answer, request)
		if answer.Code != status || !strings.Contains(answer.Body.String(), text) {
			t.Errorf("%s: %d %q, want %d with %q", path, answer.Code, answer.Body.String(), status, text)
		}
	}
	// While the driver's socket is waited for, this process is alive and not ready.
	expect("/healthz", 200, "ok")
	expect("/healthz/leader-election", 200, "ok")
	expect("/readyz", 503, "has not answered yet")

	stuck, probe := error(nil), error(nil)
	ready := true
	s.setHealthy(func() error { return stuck })
	s.setDriver(func(context.Context) (bool, error) { return ready, probe })
	expect("/healthz", 200, "ok")
	expect("/readyz", 503, "caches are not full")
	s.setFilled()
	expect("/readyz", 200, "ok")

	begun := errors.New("the journal can't be read")
	s.setRecovered(func() error { return begun })
	expect("/readyz", 503, "journal can't be read")
	begun = nil
	expect("/readyz", 200, "ok")

	stuck = errors.New("7 objects are queued, and no worker has begun one")
	expect("/healthz", 503, "7 objects are queued")
	expect("/healthz/leader-election", 503, "7 objects are queued")
	expect("/readyz", 200, "ok")

	stuck, ready = nil, false
	expect("/healthz", 200, "ok")
	expect("/readyz", 503, "its log says why")
	probe = errors.New("connection refused")
	expect("/readyz", 503, "connection refused")

	expect("/metrics", 200, "")
	expect("/debug/pprof/", 404, "")
}
