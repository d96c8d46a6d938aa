package ecs

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

// wire is the http.RoundTripper of one SDK client. The SDK takes no context,
// changes every *http.Transport that it is given, and signs the URL; so one
// wire stands between each SDK client and the shared transport. It carries the
// context and the keys of the call in flight and remembers how far it got.
type wire struct {
	shared http.RoundTripper
	traced bool // shared reports the connections that it uses

	ctx       context.Context
	keys      credentials.Keys
	sent      atomic.Bool // ECS may have received the request
	requestID string      // from the header of the reply
}

// begin readies the wire for the next call.
func (w *wire) begin(ctx context.Context, keys credentials.Keys) {
	w.ctx, w.keys, w.requestID = ctx, keys, ""
	w.sent.Store(false)
}

// end forgets the call.
func (w *wire) end() { w.ctx, w.keys = nil, credentials.Keys{} }

// RoundTrip sends one request under the context of the call in flight. A
// redirect is an error: following it would hand the signed URL to another host.
func (w *wire) RoundTrip(request *http.Request) (*http.Response, error) {
	if err := w.ctx.Err(); err != nil {
		return nil, err
	}
	ctx := w.ctx
	if w.traced {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			GotConn: func(httptrace.GotConnInfo) { w.sent.Store(true) },
		})
	} else {
		w.sent.Store(true)
	}
	request = request.WithContext(ctx)
	request.Cancel = nil //nolint:staticcheck // the context has the same deadline, and not every transport knows this field
	response, err := w.shared.RoundTrip(request)
	if err != nil {
		if neverSent(err) {
			w.sent.Store(false)
		}
		return nil, err
	}
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

// GetCredentials gives the SDK the keys of the call in flight.
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

// newTransport returns a transport that keeps a connection open for every call
// that may be in flight. Connections are dropped before common load balancers
// drop them, so that a call rarely meets one that is gone.
func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: connectTimeout, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConns:        sessions,
		MaxIdleConnsPerHost: sessions,
		MaxConnsPerHost:     sessions,
		IdleConnTimeout:     30 * time.Second,
	}
}
