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

	sdkcredentials "github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"

	"github.com/topodisk/topodisk/diskdriver/ecs/credentials"
)

// wire is the http.RoundTripper of one call. The SDK takes no context, changes
// every *http.Transport that it is given, and signs the URL; so a wire stands
// between its client and the shared RoundTripper. It carries the context and the
// keys of the call and remembers how far it got.
type wire struct {
	ctx    context.Context //nolint:containedctx // of the one call that it is for
	keys   credentials.Keys
	shared http.RoundTripper
	clock  *serverClock

	expires   bool        // the request is to expire soon
	sent      atomic.Bool // ECS may have received the request
	requestID string      // from the header of the reply
}

// RoundTrip sends the request under the context of the call. A
// redirect is an error: following it would hand the signed URL to another host.
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
	request = request.WithContext(ctx)
	request.Cancel = nil //nolint:staticcheck // the context has the same deadline, and not every transport knows this field
	if w.expires {
		request = withTimestamp(request, w.keys, w.clock.expiring())
	}
	response, err := w.shared.RoundTrip(request)
	if err != nil {
		if neverSent(err) {
			w.sent.Store(false)
		}
		return nil, err
	}
	w.clock.learn(response.Header)
	w.requestID = response.Header.Get("X-Acs-Request-Id")
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

// GetCredentials gives the SDK the keys of the call.
func (w *wire) GetCredentials() (*sdkcredentials.Credentials, error) {
	return &sdkcredentials.Credentials{
		AccessKeyId:     w.keys.AccessKeyID,
		AccessKeySecret: w.keys.AccessKeySecret,
		SecurityToken:   w.keys.SecurityToken,
		ProviderName:    w.GetProviderName(),
	}, nil
}

// GetProviderName names the kind of credentials in a header, as the SDK's own
// providers do.
func (w *wire) GetProviderName() string {
	if w.keys.SecurityToken != "" {
		return "static_sts"
	}
	return "static_ak"
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
