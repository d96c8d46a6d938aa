package ecs

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/responses"
	sdkecs "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/credentials"
	"github.com/topodisk/topodisk/diskdriver/ecs/internal/endpoint"
	"github.com/topodisk/topodisk/diskdriver/ecs/ratelimit"
)

// callsInFlight is how many calls of one action a Client makes at once; the next
// one waits.
const callsInFlight = 100

// sessions is how many calls of all actions there may be at once.
var sessions = callsInFlight * len(actions)

// session is one SDK client with its wire. The SDK's clients race with
// themselves, so a session makes one call at a time.
type session struct {
	client *sdkecs.Client
	wire   *wire
}

// pool makes sessions when none is idle, and no more than it may.
type pool struct {
	create func() (*session, error)
	free   chan struct{} // holds one element for each session that may be taken

	mu   sync.Mutex
	idle []*session
}

// loadEndpoints fills the SDK's table of endpoints, which it does lazily and
// without a lock.
var loadEndpoints = sync.OnceFunc(func() { sdkecs.GetEndpointMap() })

// newPool returns a pool with one session, which shows that the SDK takes the
// Config.
func newPool(config Config, at endpoint.Endpoint) (*pool, error) {
	loadEndpoints()
	shared := config.Transport
	if shared == nil {
		shared = newTransport()
	}
	_, traced := shared.(*http.Transport)
	p := &pool{free: make(chan struct{}, sessions), create: func() (*session, error) {
		return newSession(config, at, &wire{shared: shared, traced: traced})
	}}
	first, err := p.create()
	if err != nil {
		return nil, err
	}
	p.idle = []*session{first}
	for range sessions {
		p.free <- struct{}{}
	}
	return p, nil
}

// take returns a session for one call.
func (p *pool) take(ctx context.Context) (*session, error) {
	select {
	case <-p.free:
	case <-ctx.Done():
		return nil, fmt.Errorf("not sent, for %d calls are under way: %w", sessions, ctx.Err())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := len(p.idle) - 1; last >= 0 {
		s := p.idle[last]
		p.idle = p.idle[:last]
		return s, nil
	}
	s, err := p.create()
	if err != nil {
		p.free <- struct{}{}
	}
	return s, err
}

// put takes a session back.
func (p *pool) put(s *session) {
	p.mu.Lock()
	p.idle = append(p.idle, s)
	p.mu.Unlock()
	p.free <- struct{}{}
}

func newSession(config Config, at endpoint.Endpoint, w *wire) (*session, error) {
	userAgent := config.UserAgent
	if userAgent == "" {
		userAgent = "topodisk"
	}
	settings := sdk.NewConfig().WithScheme(strings.ToUpper(at.Scheme)).WithAutoRetry(false).WithUserAgent(userAgent)
	settings.Transport = w
	client, err := sdkecs.NewClientWithOptions(config.Region, settings, w)
	if err != nil {
		return nil, fmt.Errorf("ecs.Config.Region %q: %w", config.Region, err)
	}
	client.Domain = at.Host
	client.SetCloseTrace(true) // a span would hold the signed URL
	// The SDK reads the proxy variables of the environment on every call, and
	// fails the call if one is not to its taste. The wire alone chooses a proxy.
	client.SetHttpProxy("http://unused.invalid")
	client.SetHttpsProxy("http://unused.invalid")
	client.SetNoProxy("^$")
	return &session{client: client, wire: w}, nil
}

// request is any SDK request of the RPC style.
type request interface {
	requests.AcsRequest
}

// turnstile is asked at the moment when a call could be sent.
type turnstile interface {
	// Start says whether the call may be sent now, and counts it if so.
	Start() bool
	// Unsent takes that back: the call was throttled, and will come again.
	Unsent()
}

// errNotReady ends a call that its turnstile didn't let through.
var errNotReady = fmt.Errorf("%w, for another call is first", ratelimit.ErrNotSent)

// send makes one call and waits out throttling. It builds a fresh request for
// every try, because the SDK keeps what it signed in the request. whole says
// whether a reply holds what was asked for: ECS's gateway may answer 200 with
// nothing in it. The errors are those of the table in errors.go.
func send[R responses.AcsResponse](ctx context.Context, c *Client, a action, build func() (request, R), whole func(R) bool) (R, error) {
	return sendWhen(ctx, c, a, open{}, build, whole)
}

// open lets every call through.
type open struct{}

func (open) Start() bool { return true }
func (open) Unsent()     {}

// sendWhen is send for a call that has to pass a turnstile when ECS's window
// has room for it. The error is errNotReady if it didn't.
func sendWhen[R responses.AcsResponse](ctx context.Context, c *Client, a action, t turnstile, build func() (request, R), whole func(R) bool) (R, error) {
	patient, cancel := patience(ctx)
	defer cancel()
	var reply R
	err := c.limiters[a].Do(patient, func() error {
		if !t.Start() {
			return errNotReady
		}
		began := time.Now()
		var err error
		reply, err = try(ctx, c, a, build, whole)
		c.metrics.observe(a, err, time.Since(began))
		if err != nil && disk.KindOf(err) == disk.Throttled {
			t.Unsent()
		}
		return err
	})
	return reply, err
}

// renewer is a source of credentials that gets new ones if ECS refuses those
// that it gave.
type renewer interface {
	Renew(ctx context.Context, refused credentials.Keys) (credentials.Keys, bool)
}

// try makes one call, once; or twice, if ECS refuses the keys and there are
// newer ones. A call whose keys were refused had no effect.
func try[R responses.AcsResponse](ctx context.Context, c *Client, a action, build func() (request, R), whole func(R) bool) (R, error) {
	var none R
	keys, err := c.keys.Get(ctx)
	if err != nil {
		return none, noKeys(a, err)
	}
	reply, err := once(ctx, c, a, keys, build, whole)
	if source, ok := c.keys.(renewer); ok && err != nil && disk.KindOf(err) == disk.Unauthenticated {
		if newer, ok := source.Renew(ctx, keys); ok {
			return once(ctx, c, a, newer, build, whole)
		}
	}
	return reply, err
}

// once makes one call.
func once[R responses.AcsResponse](ctx context.Context, c *Client, a action, keys credentials.Keys, build func() (request, R), whole func(R) bool) (R, error) {
	var none R
	s, err := c.pool.take(ctx)
	if err != nil {
		return none, &disk.Error{Op: a.name, Kind: disk.Unreachable, Err: err}
	}
	defer c.pool.put(s)
	call, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	s.wire.begin(call, keys)
	defer s.wire.end()

	question, reply := build()
	setTimeouts(call, question)
	if err := s.do(question, reply); err != nil {
		return none, s.failure(ctx, a, err)
	}
	if !whole(reply) {
		return none, s.failure(ctx, a, errHollow)
	}
	return reply, nil
}

// setTimeouts tells the SDK the time that the context leaves, and a little more,
// so that the context is what ends a call; without it the SDK keeps the timeout
// of the client's first call for all later ones.
func setTimeouts(ctx context.Context, r request) {
	r.SetConnectTimeout(connectTimeout)
	deadline, _ := ctx.Deadline()
	r.SetReadTimeout(max(time.Until(deadline), 0) + time.Second)
}

// do runs the call, and turns a panic of the SDK over an odd reply into an error.
func (s *session) do(question request, reply responses.AcsResponse) (err error) {
	defer func() {
		if recover() != nil {
			err = errUnreadable
		}
	}()
	return s.client.DoAction(question, reply)
}
