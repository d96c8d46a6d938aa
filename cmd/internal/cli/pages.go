package cli

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// Limits of a port that anybody in the cluster may reach.
const (
	maxConnections  = 64
	maxHeader       = 16 << 10
	headerTimeout   = 5 * time.Second
	requestTimeout  = 10 * time.Second
	responseTimeout = time.Minute // a CPU profile takes half a minute
	idleTimeout     = time.Minute
)

// Answer answers "ok", or with status 503 "not ok". The error of the check is in the log; it is in the answer, too, for a client on
// loopback alone, because it may name files, accounts and what ECS says of them.
func Answer(check func(*http.Request) error) http.HandlerFunc {
	said := &lastError{}
	return func(w http.ResponseWriter, r *http.Request) {
		err := check(r)
		if said.isNews(err) {
			klog.InfoS("A health check has another result", "page", r.URL.Path, "error", err)
		}
		switch {
		case err == nil:
			fmt.Fprintln(w, "ok")
		case isLoopback(r.RemoteAddr):
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		default:
			http.Error(w, "not ok", http.StatusServiceUnavailable)
		}
	}
}

func isLoopback(address string) bool {
	from, err := netip.ParseAddrPort(address)
	return err == nil && from.Addr().Unmap().IsLoopback()
}

// lastError is the last result of a check that was logged.
type lastError struct {
	mu     sync.Mutex
	text   string // empty: ok
	logged time.Time
}

// isNews says whether a result is to be logged: a check that fails or succeeds again is at once, another error once a minute.
func (l *lastError) isNews(err error) bool {
	text := ""
	if err != nil {
		text = err.Error()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if text == l.text || text != "" && l.text != "" && time.Since(l.logged) < time.Minute {
		return false
	}
	l.text, l.logged = text, time.Now()
	return true
}

// Serve serves at the server's address until it is closed, and logs ended if it
// ends by itself. Without an address it serves nothing.
func Serve(server *http.Server, ended string) error {
	if server.Addr == "" {
		return nil
	}
	listener, err := net.Listen("tcp", server.Addr)
	if err != nil {
		return fmt.Errorf("--http-endpoint=%s: %w", server.Addr, err)
	}
	bound(server)
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			klog.ErrorS(err, ended, "address", server.Addr)
		}
	}()
	return nil
}

// bound limits what the server's clients can make it keep.
func bound(server *http.Server) {
	server.ReadHeaderTimeout, server.ReadTimeout = headerTimeout, requestTimeout
	server.WriteTimeout, server.IdleTimeout = responseTimeout, idleTimeout
	server.MaxHeaderBytes = maxHeader
	server.ConnState = (&connections{}).note
}

// connections are those of one port, the one whose state has changed least recently first.
type connections struct {
	mu   sync.Mutex
	open []net.Conn
}

// note closes the connection whose state has changed least recently when there are too many, so that idle ones keep no probe out.
func (c *connections) note(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = slices.DeleteFunc(c.open, func(other net.Conn) bool { return other == conn })
	if state == http.StateClosed || state == http.StateHijacked {
		return
	}
	if c.open = append(c.open, conn); len(c.open) > maxConnections {
		_ = c.open[0].Close() // it was about to be closed anyway
		c.open = c.open[1:]
	}
}
