// Package ecssim is a simulated ECS: it speaks the wire protocol of the
// Alibaba Cloud ECS API (RPC parameters, signatures, error bodies), keeps
// disks, instances and stock in memory, and injects faults on request.
//
// What it is made of is in the packages below: wire speaks the protocol, state is
// what is true in a region, actions are what ECS does, faults what goes wrong
// and how long things take. This package takes a request through them.
//
// A Server is an http.Handler, for clients that connect to it, and an
// http.RoundTripper, for clients in the same process. It reads the time from
// package time, so that it lives by the fake clock of a testing/synctest
// bubble if it is made inside one, and it starts no goroutines: states that
// change with time are worked out when somebody looks.
package ecssim

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/topodisk/topodisk/ecssim/actions"
	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/faults"
	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// Server is one account in one region of a simulated ECS. Its methods may be
// called from many goroutines.
type Server struct {
	clock *state.Clock

	mu          sync.Mutex // guards all below
	config      Config
	service     *actions.Service // its state, its rules and how long things take
	keys        *wire.Keyring
	permissions *faults.Permissions
	limits      *faults.CallLimits
	faults      *faults.List
	ledger      ledger
}

// New makes a Server. Its error is a *ConfigError, which names the field, the
// value and what is allowed.
func New(c Config) (*Server, error) {
	c, err := c.complete()
	if err != nil {
		return nil, err
	}
	permissions, err := faults.NewPermissions(actions.Signed(), c.Denials)
	if err != nil {
		return nil, err
	}
	s := &Server{
		config:      c,
		clock:       state.NewClock(),
		keys:        wire.NewKeyring(len(c.AccessKeys) > 0 || len(c.Roles) > 0, c.AccessKeys, c.SecurityTokens, fmt.Sprintf("%s/%d", c.Region, c.Seed)),
		permissions: permissions,
		limits:      faults.NewCallLimits(c.Throttle),
		faults:      faults.NewList(actions.Names(), actions.Lagging(), c.Seed),
		ledger:      newLedger(c.LedgerSize),
	}
	region := state.New(c.region(), s.clock.Now(), func(disk string) { s.ledger.stats.diskGone(disk) })
	s.service = actions.New(c.rules(), region, faults.NewTiming(c.Latency, c.Seed), s.keys, c.TokenLife)
	return s, nil
}

// Advance moves the simulator's clock forward by d, so that what takes time
// is done sooner: disks become Available, replies that are waited for come.
// Inside a testing/synctest bubble time.Sleep does the same. The check of a
// request's timestamp is not moved, for its sender's clock is not either.
func (s *Server) Advance(d time.Duration) error {
	if d < 0 {
		return config.Invalid("advance", d.String(), "a duration of zero or more; the clock never goes back")
	}
	s.clock.Advance(d)
	return nil
}

// Now returns the time by the simulator's clock.
func (s *Server) Now() time.Time { return s.clock.Now() }

// look runs f on the state of this moment: everything that fell due before is
// done first. What f changes is remembered.
func (s *Server) look(f func(now time.Time)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	s.service.Region.Run(now)
	f(now)
	s.service.Region.Remember(now)
}

// seen returns what f finds at this moment.
func seen[T any](s *Server, f func(now time.Time) T) (v T) {
	s.look(func(now time.Time) { v = f(now) })
	return v
}

// serve answers one request. The error is that of ctx: the caller hung up,
// which stops nothing that the request has set going.
func (s *Server) serve(ctx context.Context, m wire.Message) (wire.Reply, error) {
	x := s.accept(m)
	defer s.look(func(time.Time) { s.ledger.stats.leave() })
	due, settled, beforeReply := x.At, false, func() {}
	for {
		if err := s.clock.WaitUntil(ctx, due); err != nil {
			return wire.Reply{}, err // the queue still runs it in its time
		}
		if settled {
			beforeReply()
			return x.reply.Encoded(), nil
		}
		s.look(func(time.Time) {
			due, settled = x.answerAt, x.settled
			if s.config.BeforeReply != nil {
				beforeReply = s.config.BeforeReply
			}
		})
	}
}

// accept reads a request, checks who sent it, picks its fault and puts it
// into the queue to take effect when it is due.
func (s *Server) accept(m wire.Message) *exchange {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	s.service.Region.Run(now)

	s.ledger.stats.enter()
	x := &exchange{
		Request: actions.Request{Service: s.service, At: now, Now: now, RequestID: s.service.Region.RequestID(), Header: m.Header},
		arrived: now, agent: m.Agent, host: m.Host,
	}
	x.refusal = s.admit(m, x)
	x.stopped = x.refusal != nil
	if !x.stopped {
		x.Fault = s.faults.Pick(faults.Call{Action: x.Action.Name, Params: x.Params, Agent: x.agent, Arrived: x.arrived})
		x.At = now.Add(x.Fault.DelayBefore)
	}
	s.service.Region.Schedule(x.At, func() { s.execute(x) })
	return x
}

// admit takes a request through the gateway: what is asked for, by whom, may
// he, and not too often. The documentation does not say in which order.
func (s *Server) admit(m wire.Message, x *exchange) *wire.Refusal {
	if no := x.Read(m); no != nil {
		return no
	}
	if no := s.authenticate(m, x); no != nil {
		return no
	}
	if no := s.authorize(x); no != nil {
		return no
	}
	return s.limits.Pass(x.Action.Name, actions.OfECS(x.Action.Name), x.Now)
}

// authenticate finds out who sent a request, if anybody must sign it.
func (s *Server) authenticate(m wire.Message, x *exchange) (no *wire.Refusal) {
	if x.Action.Unsigned {
		return nil
	}
	x.Caller, x.stamp, no = s.keys.Authenticate(m, x.All)
	if no != nil && no.Status == 404 && s.config.Doubts.UnknownKeyIs400 {
		no.Status = 400
	}
	return no
}

// execute lets a request take effect at its time, and settles its reply and
// when that is sent. It is called with s.mu held.
func (s *Server) execute(x *exchange) {
	x.Now, x.Disk, x.Takes = x.At, x.Params["DiskId"], s.service.Timing.Vary(s.service.Timing.Of(x.Action.Name))
	var body wire.Object
	if x.refusal == nil {
		x.refusal = x.Fault.RefusalBefore()
	}
	if x.Fault.Do == faults.Late && !x.again {
		s.redeliver(x)
	}
	if x.refusal == nil && (x.again || !x.Fault.Unheard()) {
		s.ledger.countUnknown(&x.Request)
		body, x.refusal = x.Perform()
	}
	x.TouchNamed()
	s.hitInstance(x)
	x.answerAt = x.At.Add(x.Takes + x.Extra + x.Fault.ReplyDelay())
	if x.stopped {
		x.answerAt = x.At // a gateway's refusal takes no time
	}
	x.SettleToken(x.answerAt)
	x.reply = x.Fault.Spoil(x.render(body), x.renderRefusal)
	if x.Silent {
		x.reply.Lost, x.reply.Status = true, 0
	}
	s.ledger.write(x)
	if s.service.Region.Disk(x.Disk) == nil {
		s.ledger.stats.diskGone(x.Disk)
	}
	x.settled = true
	s.repeat(x)
}

// repeat lets a request take effect once more if its fault says so.
func (s *Server) repeat(x *exchange) {
	if x.again || x.stopped || x.Fault.Do != faults.Duplicate && x.Fault.Do != faults.Echo {
		return
	}
	second := *x
	second.again, second.refusal, second.Token, second.Extra, second.Ends = true, nil, nil, 0, time.Time{}
	second.Fault = Fault{Do: x.Fault.Do}
	second.RequestID = s.service.Region.RequestID()
	second.At = x.answerAt
	if x.Fault.Do == faults.Echo {
		second.At, second.Silent = x.answerAt.Add(x.Fault.Lag), true
		s.service.Region.Schedule(second.At, func() { s.execute(&second) })
		return
	}
	x.settled = false
	s.service.Region.Schedule(second.At, func() {
		s.execute(&second)
		x.reply, x.answerAt, x.settled = second.reply, second.answerAt, true
	})
}

// redeliver lets a request whose connection was closed arrive Lag later.
func (s *Server) redeliver(x *exchange) {
	second := *x
	second.again, second.Silent, second.Fault = true, true, Fault{Do: faults.Late}
	second.RequestID = s.service.Region.RequestID()
	second.At = x.At.Add(x.Fault.Lag)
	s.service.Region.Schedule(second.At, func() {
		if s.keys.Checked && !second.Action.Unsigned {
			second.refusal = wire.CheckTimestamp(second.stamp, second.At) // whenever somebody looks
		}
		s.execute(&second)
	})
}
