package ecs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// switched is a RoundTripper that tests change between calls.
type switched struct{ to http.RoundTripper }

func (s *switched) RoundTrip(r *http.Request) (*http.Response, error) { return s.to.RoundTrip(r) }

// serve starts an HTTP server and counts the connections that it gets.
func serve(t *testing.T, handler http.Handler) (url string, connections *atomic.Int32) {
	t.Helper()
	connections = new(atomic.Int32)
	server := httptest.NewUnstartedServer(handler)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	return server.URL, connections
}

func TestManyCallsOverHTTPShareFewConnections(t *testing.T) {
	const workers, rounds = 32, 10
	sim := newSim(t, nil)
	url, connections := serve(t, sim)
	c := newClient(t, Config{Endpoint: url})
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := range rounds {
				made, err := create(t.Context(), c, fmt.Sprintf("vol-%d-%d", w, i))
				if err != nil {
					t.Errorf("create: %v", err)
					return
				}
				if err := c.Delete(t.Context(), made.ID); err != nil {
					t.Errorf("delete: %v", err)
				}
			}
		})
	}
	all.Wait()
	if creates, deletes := sim.Count("CreateDisk", ""), sim.Count("DeleteDisk", ""); creates != workers*rounds || deletes != workers*rounds || len(sim.Disks()) != 0 {
		t.Errorf("%d created, %d deleted, %d left; want %d, %d, 0", creates, deletes, len(sim.Disks()), workers*rounds, workers*rounds)
	}
	if n := connections.Load(); n > 2*workers {
		t.Errorf("%d calls by %d workers opened %d connections, want at most %d", 2*workers*rounds, workers, n, 2*workers)
	}
}

func TestAServerThatIsNotThereIsUnreachable(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	c := newClient(t, Config{Endpoint: "http://" + address})
	for _, op := range operations {
		wantNoSecret(t, wantKind(t, op.do(t.Context(), c), disk.Unreachable))
	}
}

func TestAServerThatHangsUpLeavesTheOutcomeUnknown(t *testing.T) {
	url, _ := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	c := newClient(t, Config{Endpoint: url})
	wantNoSecret(t, wantKind(t, c.Delete(t.Context(), "d-bp1a"), disk.UnknownOutcome))
	_, err := create(t.Context(), c, "vol-1")
	wantNoSecret(t, wantKind(t, err, disk.UnknownOutcome))
	wantNoSecret(t, wantKind(t, c.Check(t.Context()), disk.Unreachable))
}

func TestAnswersThatBreakOffOverHTTPAreUnknown(t *testing.T) {
	url, _ := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, `{"DiskId":"d-bp1a","RequestId":"R1"`)
	}))
	c := newClient(t, Config{Endpoint: url})
	_, err := create(t.Context(), c, "vol-1")
	wantKind(t, err, disk.UnknownOutcome)
	wantKind(t, c.Delete(t.Context(), "d-bp1a"), disk.UnknownOutcome)
}

func TestARedirectIsNotFollowed(t *testing.T) {
	var followed atomic.Int32
	elsewhere, _ := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Add(1) }))
	url, _ := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere+r.URL.RequestURI(), http.StatusTemporaryRedirect)
	}))
	c := newClient(t, Config{Endpoint: url})
	wantNoSecret(t, wantKind(t, c.Delete(t.Context(), "d-bp1a"), disk.UnknownOutcome))
	if followed.Load() != 0 {
		t.Error("the signed request went to another host")
	}
}

func TestTheCallersContextEndsACallOverHTTP(t *testing.T) {
	release := make(chan struct{})
	arrived := make(chan struct{}, 1)
	url, _ := serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() { close(release) })
	c := newClient(t, Config{Endpoint: url})
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- c.Delete(ctx, "d-bp1a") }()
	<-arrived
	cancel()
	err := <-result
	wantKind(t, err, disk.UnknownOutcome)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v: the call went on to an end of its own", err)
	}
}

func TestAConnectionThatNeverOpensSendsNothing(t *testing.T) {
	// A server that accepts no handshake: the request is never written.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	c := newClient(t, Config{Endpoint: "https://" + listener.Addr().String()})
	wantNoSecret(t, wantKind(t, c.Delete(t.Context(), "d-bp1a"), disk.Unreachable))
}
