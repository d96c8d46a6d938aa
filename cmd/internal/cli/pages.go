package cli

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/klog/v2"
)

// Answer answers "ok", or with status 503 the error of a check.
func Answer(check func(*http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := check(r); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}

// Serve serves at the server's address until it is closed, and logs ended if it
// ends by itself. Without an address it serves nothing.
func Serve(server *http.Server, ended string) error {
	if server.Addr == "" {
		return nil
	}
	server.ReadHeaderTimeout = 5 * time.Second
	listener, err := net.Listen("tcp", server.Addr)
	if err != nil {
		return fmt.Errorf("--http-endpoint=%s: %w", server.Addr, err)
	}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			klog.ErrorS(err, ended, "address", server.Addr)
		}
	}()
	return nil
}
