// Package ecssim is a simulated ECS: it speaks the wire protocol of the
// Alibaba Cloud ECS API (RPC parameters, signatures, error bodies), keeps
// disks, instances and stock in memory, and injects faults on request.
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
	"strings"
	"sync"
	"time"

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
	region      *state.Region
	keys        *wire.Keyring
	permissions *faults.Permissions
	metadata    metadataService
	timing      *faults.Timing
	limits      *faults.CallLimits
	faults      *faults.List
	ledger      ledger
	tokens      tokens
}

// New makes a Server. Its error is a *ConfigError, which names the field, the
// value and what is allowed.
func New(c Config) (*Server, error) {
	c, err := c.complete()
	if err != nil {
		return nil, err
	}
	permissions, err := faults.NewPermissions(signedActions(), c.Denials)
	if err != nil {
		return nil, err
	}
	s := &Server{
		config:      c,
		clock:       state.NewClock(),
		keys:        wire.NewKeyring(len(c.AccessKeys) > 0 || len(c.Roles) > 0, c.AccessKeys, c.SecurityTokens, fmt.Sprintf("%s/%d", c.Region, c.Seed)),
		permissions: permissions,
		metadata:    newMetadataService(),
		timing:      faults.NewTiming(c.Latency, c.Seed),
		limits:      faults.NewCallLimits(c.Throttle),
		faults:      faults.NewList(ActionNames(), staleReads, c.Seed),
		ledger:      newLedger(c.LedgerSize),
		tokens:      newTokens(c.TokenLife),
	}
	s.region = state.New(c.region(), s.clock.Now(), func(disk string) { s.ledger.stats.diskGone(disk) })
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
	s.region.Run(now)
	f(now)
	s.region.Remember(now)
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
	due, settled, beforeReply := x.at, false, func() {}
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
	s.region.Run(now)

	s.ledger.stats.enter()
	x := &exchange{arrived: now, at: now, now: now, agent: m.Agent, requestID: s.region.RequestID(), host: m.Host, header: m.Header}
	x.refusal = s.admit(m, x)
	x.stopped = x.refusal != nil
	if !x.stopped {
		x.fault = s.faults.Pick(faults.Call{Action: x.action.name, Params: x.Params, Agent: x.agent, Arrived: x.arrived})
		x.at = now.Add(x.fault.DelayBefore)
	}
	s.region.Schedule(x.at, func() { s.execute(x) })
	return x
}

// admit takes a request through the gateway: what is asked for, by whom, may
// he, and not too often. The documentation does not say in which order.
func (s *Server) admit(m wire.Message, x *exchange) *wire.Refusal {
	if strings.HasPrefix(m.Path, metadataRoot) {
		if no := x.readMetadataRequest(m); no != nil {
			return no
		}
		return s.limits.Pass(x.action.name, x.action.version == versionECS, x.now)
	}
	var no *wire.Refusal
	if x.Input, no = wire.ReadInput(m); no != nil {
		return no
	}
	if no := x.findAction(m); no != nil {
		return no
	}
	if no := s.authenticate(m, x); no != nil {
		return no
	}
	if no := s.authorize(x); no != nil {
		return no
	}
	return s.limits.Pass(x.action.name, x.action.version == versionECS, x.now)
}

// authenticate finds out who sent a request, if anybody must sign it.
func (s *Server) authenticate(m wire.Message, x *exchange) (no *wire.Refusal) {
	if x.action.unsigned {
		return nil
	}
	x.caller, x.stamp, no = s.keys.Authenticate(m, x.All)
	if no != nil && no.Status == 404 && s.config.Doubts.UnknownKeyIs400 {
		no.Status = 400
	}
	return no
}

// execute lets a request take effect at its time, and settles its reply and
// when that is sent. It is called with s.mu held.
func (s *Server) execute(x *exchange) {
	x.now, x.disk, x.takes = x.at, x.Params["DiskId"], s.timing.Vary(s.timing.Of(x.action.name))
	var body wire.Object
	if x.refusal == nil {
		x.refusal = x.fault.RefusalBefore()
	}
	if x.fault.Do == faults.Late && !x.again {
		s.redeliver(x)
	}
	if x.refusal == nil && (x.again || !x.fault.Unheard()) {
		body, x.refusal = s.perform(x)
	}
	s.touchNamed(x)
	s.strikeInstance(x)
	x.answerAt = x.at.Add(x.takes + x.extra + x.fault.ReplyDelay())
	if x.stopped {
		x.answerAt = x.at // a gateway's refusal takes no time
	}
	s.settleToken(x)
	x.reply = x.fault.Spoil(x.render(body), x.renderRefusal)
	if x.silent {
		x.reply.Lost, x.reply.Status = true, 0
	}
	s.ledger.write(x)
	if s.region.Disk(x.disk) == nil {
		s.ledger.stats.diskGone(x.disk)
	}
	x.settled = true
	s.repeat(x)
}

// repeat lets a request take effect once more if its fault says so.
func (s *Server) repeat(x *exchange) {
	if x.again || x.stopped || x.fault.Do != faults.Duplicate && x.fault.Do != faults.Echo {
		return
	}
	second := *x
	second.again, second.refusal, second.token, second.extra, second.ends = true, nil, nil, 0, time.Time{}
	second.fault = faults.Fault{Do: x.fault.Do}
	second.requestID = s.region.RequestID()
	second.at = x.answerAt
	if x.fault.Do == faults.Echo {
		second.at, second.silent = x.answerAt.Add(x.fault.Lag), true
		s.region.Schedule(second.at, func() { s.execute(&second) })
		return
	}
	x.settled = false
	s.region.Schedule(second.at, func() {
		s.execute(&second)
		x.reply, x.answerAt, x.settled = second.reply, second.answerAt, true
	})
}

// redeliver lets a request whose connection was closed arrive Lag later.
func (s *Server) redeliver(x *exchange) {
	second := *x
	second.again, second.silent, second.fault = true, true, faults.Fault{Do: faults.Late}
	second.requestID = s.region.RequestID()
	second.at = x.at.Add(x.fault.Lag)
	s.region.Schedule(second.at, func() {
		if s.keys.Checked && !second.action.unsigned {
			second.refusal = wire.CheckTimestamp(second.stamp, second.at) // whenever somebody looks
		}
		s.execute(&second)
	})
}

// perform checks what every action has in common and runs the action.
func (s *Server) perform(x *exchange) (wire.Object, *wire.Refusal) {
	s.ledger.countUnknown(x)
	if no := x.checkRequired(); no != nil {
		return nil, no
	}
	if no := x.checkEmpty(); no != nil {
		return nil, no
	}
	if region := x.Params["RegionId"]; region != "" && region != s.config.Region && !x.action.anyRegion {
		return nil, x.action.wrongRegion(region)
	}
	if x.fault.Do == faults.Ignored && !wire.IsRead(x.action.name) {
		return x.ignored(), nil
	}
	x.lagBehind()
	body, no := x.action.do(s, x)
	if x.blind || x.fault.Do == faults.Nothing && wire.IsRead(x.action.name) {
		body = body.Emptied()
	}
	return body, no
}
