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

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/responses"

	"github.com/topodisk/topodisk/diskdriver/ecs/credentials"
)

// longestReply is the most that is read of a reply: one that is longer is an error, for what is cut could pass for the whole. A page of
// 500 disks, the longest that is asked for, has less than 2 MiB.
const longestReply = 8 << 20

// exchange is one request and its reply: with which keys it is signed, and how far it got.
type exchange struct {
	transport *Transport
	keys      credentials.Keys
	expires   bool        // the request is to expire soon
	sent      atomic.Bool // ECS may have received the request
	header    http.Header // of the reply; nil without one
}

// run sends a request and reads its reply. An odd reply makes the SDK panic, which is an error here.
func (x *exchange) run(ctx context.Context, request requests.AcsRequest, reply responses.AcsResponse) (err error) {
	defer func() {
		if recover() != nil {
			err = errUnreadable
		}
	}()
	unsigned, err := x.encode(ctx, request)
	if err != nil {
		return err
	}
	response, err := x.send(unsigned) //nolint:bodyclose // Unmarshal closes it
	if err != nil {
		return err
	}
	return responses.Unmarshal(reply, response, "JSON")
}

// encode returns the HTTP request of a request of the SDK's. All fields of the requests that are made here belong into the query.
func (x *exchange) encode(ctx context.Context, request requests.AcsRequest) (*http.Request, error) {
	config := x.transport.config
	request.SetScheme(config.Endpoint.Scheme)
	request.SetDomain(config.Endpoint.Host)
	if err := requests.InitParams(request); err != nil {
		return nil, err
	}
	if query := request.GetQueryParams(); query["RegionId"] == "" {
		query["RegionId"] = config.Region
	}
	encoded, err := http.NewRequestWithContext(ctx, request.GetMethod(), request.BuildUrl(), http.NoBody)
	if err != nil {
		return nil, err
	}
	for name, value := range request.GetHeaders() {
		encoded.Header.Set(name, value)
	}
	encoded.Header.Set("User-Agent", sdk.DefaultUserAgent+" Extra/"+config.UserAgent)
	return encoded, nil
}

// send signs a request and sends it. A redirect is an error: following it would hand the signed request to another host.
func (x *exchange) send(request *http.Request) (*http.Response, error) {
	ctx, t := request.Context(), x.transport
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if _, ok := t.shared.(*http.Transport); ok { // reports the connections that it uses
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			GotConn: func(httptrace.GotConnInfo) { x.sent.Store(true) },
		})
	} else {
		x.sent.Store(true)
	}
	signedAt := time.Now()
	if x.expires {
		signedAt = t.clock.expiring()
	}
	response, err := t.shared.RoundTrip(t.config.Signature.Sign(request.WithContext(ctx), x.keys, signedAt))
	if err != nil {
		if neverSent(err) {
			x.sent.Store(false)
		}
		return nil, err
	}
	response.Body = http.MaxBytesReader(nil, response.Body, longestReply)
	t.clock.learn(response.Header)
	x.header = response.Header
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
