package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/topodisk/topodisk/diskdriver/ecs/credentials"
	"github.com/topodisk/topodisk/diskdriver/ecs/signature"
)

// longestReply is the most that is read of a reply: one that is longer is an error, for what is cut could pass for the whole. A page of
// 500 disks, the longest that is asked for, has less than 2 MiB.
const longestReply = 8 << 20

// wire is the http.RoundTripper of one call, before the shared one. It carries the
// context and the keys of the call, signs the request with them, and remembers how
// far it got.
type wire struct {
	ctx       context.Context //nolint:containedctx // of the one call that it is for
	keys      credentials.Keys
	signature signature.Version
	shared    http.RoundTripper
	clock     *serverClock

	expires bool        // the request is to expire soon
	sent    atomic.Bool // ECS may have received the request
	header  http.Header // of the reply; nil without one
}

// RoundTrip signs the request and sends it under the context of the call. A
// redirect is an error: following it would hand the signed request to another host.
func (w *wire) RoundTrip(request *http.Request) (*http.Response, error) {
	if err := w.ctx.Err(); err != nil {
		return nil, err
	}
	ctx := w.ctx
	if _, ok := w.shared.(*http.Transport); ok { // reports the connections that it uses
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			GotConn: func(httptrace.GotConnInfo) { w.sent.Store(true) },
		})
	} else {
		w.sent.Store(true)
	}
	signedAt := time.Now()
	if w.expires {
		signedAt = w.clock.expiring()
	}
	response, err := w.shared.RoundTrip(w.signature.Sign(request.WithContext(ctx), w.keys, signedAt))
	if err != nil {
		if neverSent(err) {
			w.sent.Store(false)
		}
		return nil, err
	}
	response.Body = http.MaxBytesReader(nil, response.Body, longestReply)
	w.clock.learn(response.Header)
	w.header = response.Header
	if response.StatusCode/100 == 3 {
		_ = response.Body.Close()
		return nil, fmt.Errorf("the endpoint answered HTTP %d, a redirect, which is not followed", response.StatusCode)
	}
	return response, nil
}

// neverSent says whether the error proves that no connection was made. A
// transport repeats a POST by itself only if nothing of it was processed, so
// the last error speaks for all tries.
func neverSent(err error) bool {
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return true
	}
	var op *net.OpError
	return errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect")
}

// newRoundTripper returns one that keeps a connection open for every call that
// may be in flight. Connections are dropped before common load balancers
// drop them, so that a call rarely meets one that is gone.
func newRoundTripper() *http.Transport {
	connections := callsInFlight * len(Actions)
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConns:        connections,
		MaxIdleConnsPerHost: connections,
		MaxConnsPerHost:     connections,
		IdleConnTimeout:     30 * time.Second,
	}
}
