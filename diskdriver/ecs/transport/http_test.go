package transport

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

	sdkecs "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/internal/ecstest"
)

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
	sim := ecstest.NewSim(t, nil)
	url, connections := serve(t, sim)
	s := newSession(t, at(url))
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := range rounds {
				made, err := CreateDisk.Send(t.Context(), s, fillCreate(fmt.Sprintf("vol-%d-%d", w, i)))
				if err != nil {
					t.Errorf("create: %v", err)
					return
				}
				if _, err := DeleteDisk.Send(t.Context(), s, func(r *sdkecs.DeleteDiskRequest) { r.DiskId = made.DiskId }); err != nil {
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
	s := newSession(t, at("http://"+address))
	for _, call := range []func(context.Context, *Session) error{create, remove, describe} {
		ecstest.WantNoSecret(t, ecstest.WantKind(t, call(t.Context(), s), disk.Unreachable))
	}
}

func TestAServerThatHangsUpLeavesTheOutcomeUnknown(t *testing.T) {
	url, _ := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	s := newSession(t, at(url))
	ecstest.WantNoSecret(t, ecstest.WantKind(t, remove(t.Context(), s), disk.UnknownOutcome))
	err := create(t.Context(), s)
	ecstest.WantNoSecret(t, ecstest.WantKind(t, err, disk.UnknownOutcome))
	ecstest.WantNoSecret(t, ecstest.WantKind(t, describe(t.Context(), s), disk.Unreachable))
}

func TestAnswersThatBreakOffOverHTTPAreUnknown(t *testing.T) {
	url, _ := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, `{"DiskId":"d-bp1a","RequestId":"R1"`)
	}))
	s := newSession(t, at(url))
	err := create(t.Context(), s)
	ecstest.WantKind(t, err, disk.UnknownOutcome)
	ecstest.WantKind(t, remove(t.Context(), s), disk.UnknownOutcome)
}

func TestARedirectIsNotFollowed(t *testing.T) {
	var followed atomic.Int32
	elsewhere, _ := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Add(1) }))
	url, _ := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere+r.URL.RequestURI(), http.StatusTemporaryRedirect)
	}))
	s := newSession(t, at(url))
	ecstest.WantNoSecret(t, ecstest.WantKind(t, remove(t.Context(), s), disk.UnknownOutcome))
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
	s := newSession(t, at(url))
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- remove(ctx, s) }()
	<-arrived
	cancel()
	err := <-result
	ecstest.WantKind(t, err, disk.UnknownOutcome)
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
	s := newSession(t, at("https://"+listener.Addr().String()))
	ecstest.WantNoSecret(t, ecstest.WantKind(t, remove(t.Context(), s), disk.Unreachable))
}
