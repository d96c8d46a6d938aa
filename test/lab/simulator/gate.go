package simulator

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"

	"github.com/topodisk/topodisk/test/lab/process"
)

// Gate is an HTTP proxy on a port of its own that can be shut: then connections are refused and those that were open
// break off, as when a network fails. What is behind it keeps running.
type Gate struct {
	address string // where it listens
	proxy   *httputil.ReverseProxy

	mu     sync.Mutex
	server *http.Server // nil while it is shut
}

// NewGate is an open one in front of a URL. Requests pass with the Host that they were sent to.
func NewGate(behind string) (*Gate, error) {
	to, err := url.Parse(behind)
	if err != nil {
		return nil, err
	}
	var port int
	if err := process.FreePorts(&port); err != nil {
		return nil, err
	}
	g := &Gate{address: fmt.Sprintf("127.0.0.1:%d", port), proxy: httputil.NewSingleHostReverseProxy(to)}
	g.proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) } // nobody answers for what is behind it
	return g, g.Open()
}

// URL is what to connect to.
func (g *Gate) URL() string { return "http://" + g.address }

// Open lets connections through again.
func (g *Gate) Open() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.server != nil {
		return nil
	}
	listener, err := net.Listen("tcp4", g.address)
	if err != nil {
		return fmt.Errorf("open gate: %w", err)
	}
	g.server = &http.Server{Handler: g.proxy}
	go g.server.Serve(listener) //nolint:errcheck // it ends when the gate is shut
	return nil
}

// Shut refuses connections from now on and breaks off those that are open.
func (g *Gate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.server != nil {
		g.server.Close() //nolint:errcheck // it is shut anyway
	}
	g.server = nil
}
