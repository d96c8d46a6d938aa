// Package transport calls the ECS API: it signs each call with the current keys, ends
// it with the caller's context, waits out throttling, and translates the result into
// the terms of package disk.
//
// Its figure is disk.RequestLifetime: a request that changes something and is held up
// on its way has no effect after 20 seconds (serverClock), and every promise about
// calls whose answer was lost counts on that.
//
// Of the SDK it uses the types of requests and replies, their encoding, the table of
// endpoints and the errors. The SDK's client has no context, shares state between
// calls without a lock, and computes MD5 and SHA-1 for each request, so no call goes
// through it.
//
// Every error that leaves this package is a *disk.Error. No error holds an
// access key, a security token or a signature.
package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/responses"
	sdkecs "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/credentials"
	"github.com/topodisk/topodisk/diskdriver/ecs/internal/endpoint"
	"github.com/topodisk/topodisk/diskdriver/ecs/ratelimit"
	"github.com/topodisk/topodisk/diskdriver/ecs/signature"
	"github.com/topodisk/topodisk/diskdriver/suspension"
)

// callsInFlight is how many calls of one action a Session makes at once; the next
// one waits.
const callsInFlight = 100

// Config says which ECS a Transport calls.
type Config struct {
	Region string
	// Endpoint without a host stands for the region's own, as the SDK knows it.
	Endpoint endpoint.Endpoint
	// RoundTripper carries the HTTP requests; nil stands for one that reuses
	// connections and honours the proxy settings of the environment.
	RoundTripper http.RoundTripper
	// UserAgent is added to the SDK's own.
	UserAgent string
	// Signature is the version that requests are signed with; empty stands for V3.
	Signature signature.Version
}

// Transport calls the ECS of one region. It is safe for concurrent use.
type Transport struct {
	config  Config
	shared  http.RoundTripper
	clock   serverClock
	metrics *metrics
}

// endpoints is the SDK's table of endpoints by region, which it fills without a lock.
var endpoints = sync.OnceValue(sdkecs.GetEndpointMap)

// New returns a Transport. It calls nothing.
func New(config Config) *Transport {
	config.Endpoint.Host = cmp.Or(config.Endpoint.Host, endpoints()[config.Region], "ecs."+config.Region+".aliyuncs.com")
	config.Signature = cmp.Or(config.Signature, signature.V3)
	t := &Transport{config: config, shared: config.RoundTripper, metrics: newMetrics()}
	if t.shared == nil {
		t.shared = newRoundTripper()
	}
	return t
}

// Collectors are the metrics of all Sessions.
func (t *Transport) Collectors() []prometheus.Collector { return t.metrics.collectors() }

// Session makes the calls of one account, with limits of its own.
type Session struct {
	transport *Transport
	keys      credentials.Provider
	limiters  map[string]*ratelimit.Limiter // by the action's name
	admission Admission                     // nil: every call may be sent when ECS's limits have room for it
}

// Admission decides on a call at the moment when ECS's limits have room for it.
type Admission interface {
	// Start says whether the call may be sent now, and counts it if so.
	Start() bool
	// Unsent takes that back: the call was throttled, or never reached ECS.
	Unsent()
}

// Admitted returns a Session whose calls end with ErrNotAdmitted if they are not admitted.
func (s *Session) Admitted(by Admission) *Session {
	admitted := *s
	admitted.admission = by
	return &admitted
}

// Session returns a Session whose calls the keys sign. It calls nothing.
func (t *Transport) Session(keys credentials.Provider) *Session {
	s := &Session{transport: t, keys: keys, limiters: make(map[string]*ratelimit.Limiter)}
	for _, name := range Actions {
		s.limiters[name] = ratelimit.New(name, callsInFlight, func() func() { return t.metrics.delay(name) })
	}
	return s
}

// Throttled says whether ECS throttles an action just now.
func (s *Session) Throttled(action string) bool { return s.limiters[action].Throttled() }

// ErrNotAdmitted ends a call that its Admission held back.
var ErrNotAdmitted = fmt.Errorf("%w, for another call is first", ratelimit.ErrNotSent)

// ErrSuspended ends a call that would change something for a caller that may have
// been replaced meanwhile.
var ErrSuspended = disk.Errorf(disk.Pending, "%w, for the driver did not run for a while and another may have taken over; the same call again goes on", ratelimit.ErrNotSent)

// build makes a fresh request, and what its reply is read into.
type build func() (requests.AcsRequest, responses.AcsResponse)

// renewer is a source of credentials that gets new ones if ECS refuses those
// that it gave.
type renewer interface {
	Renew(ctx context.Context, refused credentials.Keys) (credentials.Keys, bool)
}

// try makes one call, once; or twice, if ECS refuses the keys and there are
// newer ones. A call whose keys were refused had no effect.
func (s *Session) try(ctx context.Context, a action, build build) (err error) {
	switch {
	case a.mutates && suspension.Happened(ctx):
		return ErrSuspended
	case s.admission != nil && !s.admission.Start():
		return ErrNotAdmitted
	}
	began := time.Now()
	defer func() {
		s.transport.metrics.observe(a.Name, err, time.Since(began))
		kind := disk.KindOf(err)
		if s.admission != nil && (kind == disk.Throttled || kind == disk.Unreachable || errors.Is(err, ErrSuspended)) {
			s.admission.Unsent()
		}
	}()
	keys, err := s.keys.Get(ctx)
	if err != nil {
		return noKeys(a, err)
	}
	err = s.transport.call(ctx, a, keys, build)
	if source, ok := s.keys.(renewer); ok && err != nil && disk.KindOf(err) == disk.Unauthenticated {
		if newer, ok := source.Renew(ctx, keys); ok {
			return s.transport.call(ctx, a, newer, build)
		}
	}
	return err
}

// call makes one call. One that changes something expires soon. If ECS finds it expired already, and it wasn't late, it is made again by
// ECS's own time, and then without an end.
func (t *Transport) call(ctx context.Context, a action, keys credentials.Keys, build build) error {
	if err := signature.CheckKeys(keys); err != nil {
		return noKeys(a, err)
	}
	if !a.mutates || !t.clock.bounds() {
		return t.once(ctx, a, keys, build, false)
	}
	left, ecsTime := time.Now(), t.clock.now()
	err := t.once(ctx, a, keys, build, true)
	if took := time.Since(left); isExpired(err) && (t.clock.now().Sub(ecsTime)-took).Abs() > sameTime { // it tells the time
		left = time.Now()
		err = t.once(ctx, a, keys, build, true)
	}
	if !isExpired(err) {
		return err
	}
	if took := time.Since(left); took >= disk.RequestLifetime-sameTime {
		return &disk.Error{Op: a.Name, Kind: disk.Unreachable, Err: fmt.Errorf("the request was on its way for up to %s, and ECS refused it, as it does after %s: %w",
			took.Round(time.Second), disk.RequestLifetime, err)}
	}
	if err = t.once(ctx, a, keys, build, false); !isExpired(err) && disk.KindOf(err) != disk.Unreachable && !errors.Is(err, ErrSuspended) {
		t.clock.unbounded()
	}
	return err
}

// once makes one call with a fresh request, for the SDK keeps in a request what it has encoded. The SDK needs a deep
// stack: it gets one of its own, for the caller may go on to wait for minutes, as thousands of others do, and would keep it.
func (t *Transport) once(ctx context.Context, a action, keys credentials.Keys, build build, expires bool) error {
	if a.mutates && suspension.Happened(ctx) { // while the keys were read, or a call before was refused
		return ErrSuspended
	}
	limited, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	x := &exchange{transport: t, keys: keys, expires: expires}
	request, reply := build()
	ended := make(chan error, 1)
	go func() { ended <- x.run(limited, request, reply) }()
	err := <-ended
	if err == nil && !a.isWhole(reply) {
		err = errHollow
	}
	if err != nil {
		return x.failure(ctx, limited, a, err)
	}
	return nil
}
