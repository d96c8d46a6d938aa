package ecssim

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"syscall"
	"time"

	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// What a Fault does.
const (
	FaultError       = "error"        // the call is refused with Status, Code and Message and has no effect
	FaultThrottle    = "throttle"     // FaultError with status 400 and code Throttling, unless Code says Throttling.User or the like
	FaultLostRequest = "lost-request" // the connection is closed and the call has no effect
	FaultLostReply   = "lost-reply"   // the call takes effect, then the connection is closed
	FaultErrorAfter  = "error-after"  // the call takes effect, then Status, Code and Message answer
	FaultTruncated   = "truncated"    // the call takes effect, then status 200 comes with half its JSON
	FaultEmpty       = "empty"        // the call takes effect, then status 200 comes without a body
	FaultHTML        = "html"         // the call takes effect, then status 502 comes with a page of HTML
	FaultDelay       = "delay"        // the call is as usual but for DelayBefore and DelayAfter
	FaultStuck       = "stuck"        // the call is accepted, and what it sets going never ends, until Unstick
	FaultFails       = "fails"        // the call is accepted, and what it sets going fails in the end
	FaultStops       = "stops"        // the call is as usual, and then the instance that it names is Stopped
	FaultVanishes    = "vanishes"     // the call is as usual, and then the instance that it names is released
	FaultBrownOut    = "brown-out"    // FaultError with status 503 and code ServiceUnavailable: a region that is not well; use Percent
	FaultRefused     = "refused"      // the connection is refused; over a socket, where it has been accepted, it is reset; no effect
	FaultReset       = "reset"        // the call takes effect, then the connection is reset
	FaultTrickle     = "trickle"      // the call takes effect, then the body of its reply comes bit by bit, all of it after DelayAfter
	FaultStale       = "stale"        // a read of disks, instances, snapshots, their groups, tasks or tags shows them as they were Lag ago
	FaultNothing     = "nothing"      // a read finds nothing
	FaultPartial     = "partial"      // a read gives half of its page; by NextToken the rest is to be had, by PageNumber it is left out
	FaultDuplicate   = "duplicate"    // the call takes effect, and then once more, and the second reply is sent: a proxy asked again
	FaultEcho        = "echo"         // the call is as usual, and takes effect once more Lag after its reply
	FaultLate        = "late"         // the connection is closed, and the request arrives Lag later, if its time stamp is still taken then
	FaultHidden      = "hidden"       // a read doesn't show the disks, instances, snapshots and groups of Hide
	FaultIgnored     = "ignored"      // the reply says success, with the ID of an order where there is one, and the call has no effect
	FaultDate        = "date"         // the call is as usual, and the Date of its reply is off by Skew
	FaultFlood       = "flood"        // the call takes effect, then the body of its reply is followed by 64 MiB of blanks
)

// FaultKinds are the values of Fault.Do.
var FaultKinds = []string{
	FaultError, FaultThrottle, FaultLostRequest, FaultLostReply, FaultErrorAfter,
	FaultTruncated, FaultEmpty, FaultHTML, FaultDelay, FaultStuck, FaultFails, FaultStops, FaultVanishes,
	FaultBrownOut, FaultRefused, FaultReset, FaultTrickle, FaultStale, FaultNothing, FaultPartial, FaultDuplicate, FaultEcho,
	FaultLate, FaultHidden, FaultIgnored, FaultDate, FaultFlood,
}

// Fault is a misbehaviour and the calls that it hits. A call is hit by the
// first fault in the list that matches it and whose turn it is. What the
// caller of FaultLostRequest and of FaultLostReply sees is the same.
type Fault struct {
	ID     int               // given by AddFault
	Action string            // of the calls that match; empty for all
	Params map[string]string // regular expressions by parameter; those absent are ""
	Agent  string            // regular expression of the User-Agent; empty for all
	Skip   int               // how many matching calls go free first
	Count  int               // how many it then hits; 0 for all, until ClearFaults
	// Percent is how many of a hundred of these calls are hit, by lot; 0 is all.
	// With one seed and one order of calls the lots are the same.
	Percent int
	From    time.Duration // from AddFault until the fault begins
	For     time.Duration // from its beginning to its end; 0 is for ever

	Do      string // one of FaultKinds
	Status  int    // of the reply; default that of the Code, else 500; 400 with FaultThrottle, 503 with FaultErrorAfter and FaultBrownOut
	Code    string // of the reply; default InternalError, ServiceUnavailable
	Message string // of the reply; default a sentence with the code

	DelayBefore time.Duration // from the request to its effect, with any Do
	DelayAfter  time.Duration // from the effect to the reply, on top of the latency
	Lag         time.Duration // of FaultStale, FaultEcho and FaultLate; default 2 s, at most 2 min
	Hide        []string      // IDs, of FaultHidden
	Skew        time.Duration // of FaultDate; less than zero is behind; default 20 min behind

	Seen int // calls that matched so far
	Hit  int // calls that were hit so far
}

// AddFault appends a fault to the list. Its error names the field that is
// wrong and what is allowed.
func (s *Server) AddFault(f Fault) error {
	_, err := s.ArmFault(f)
	return err
}

// ArmFault is AddFault that returns the fault as the list has it: with its ID
// and with what was left out.
func (s *Server) ArmFault(f Fault) (Fault, error) {
	armed, err := arm(f)
	if err != nil {
		return Fault{}, err
	}
	armed.begins = s.clock.now().Add(f.From)
	s.look(func(time.Time) { f = s.faults.add(armed) })
	return f, nil
}

// ClearFaults empties the list. Calls that are under way keep theirs.
func (s *Server) ClearFaults() { s.look(func(time.Time) { s.faults.armed = nil }) }

// Faults returns the list, with how often each has struck.
func (s *Server) Faults() []Fault {
	return seen(s, func(time.Time) []Fault { return s.faults.list() })
}

// faultList is the faults in force.
type faultList struct {
	armed  []*armedFault
	lastID int
	lots   *rand.Rand
}

// armedFault is a fault that was found valid.
type armedFault struct {
	Fault
	params map[string]*regexp.Regexp
	agent  *regexp.Regexp
	begins time.Time
}

// arm checks a fault and fills in its defaults.
func arm(f Fault) (*armedFault, error) {
	a := &armedFault{Fault: f, params: map[string]*regexp.Regexp{}}
	if f.Action != "" && !slices.Contains(ActionNames(), f.Action) {
		return nil, config.Invalid("action", f.Action, `"" for all, or `+config.OneOf(ActionNames()))
	}
	for _, name := range slices.Sorted(maps.Keys(f.Params)) {
		re, err := regexp.Compile(f.Params[name])
		if err != nil {
			return nil, config.Invalid("params."+name, f.Params[name], "a regular expression: "+err.Error())
		}
		a.params[name] = re
	}
	var err error
	if a.agent, err = regexp.Compile(f.Agent); err != nil {
		return nil, config.Invalid("agent", f.Agent, "a regular expression: "+err.Error())
	}
	if err := f.checkNumbers(); err != nil {
		return nil, err
	}
	if !slices.Contains(FaultKinds, f.Do) {
		return nil, config.Invalid("do", f.Do, config.OneOf(FaultKinds))
	}
	switch {
	case f.Do == FaultDelay && f.DelayBefore == 0 && f.DelayAfter == 0:
		return nil, config.Invalid("do", f.Do, "a delayBefore or a delayAfter above zero with it")
	case f.Do == FaultTrickle && f.DelayAfter == 0:
		return nil, config.Invalid("do", f.Do, "a delayAfter above zero with it")
	case f.Do == FaultStale && f.Action != "" && !slices.Contains(staleReads, f.Action):
		return nil, config.Invalid("action", f.Action, `with `+FaultStale+` "", for all that can lag behind, or `+config.OneOf(staleReads))
	}
	a.fillReply()
	return a, nil
}

// checkNumbers checks what has a range.
func (f Fault) checkNumbers() error {
	for _, n := range []struct {
		name  string
		value int
	}{
		{"skip", f.Skip}, {"count", f.Count}, {"delayBefore", int(f.DelayBefore)}, {"delayAfter", int(f.DelayAfter)},
		{"percent", f.Percent}, {"from", int(f.From)}, {"for", int(f.For)}, {"lag", int(f.Lag)},
	} {
		if n.value < 0 {
			return config.Invalid(n.name, fmt.Sprint(n.value), "zero or more")
		}
	}
	switch {
	case f.Status != 0 && (f.Status < 400 || f.Status > 599):
		return config.Invalid("status", fmt.Sprint(f.Status), "400 to 599")
	case f.Percent > 100:
		return config.Invalid("percent", fmt.Sprint(f.Percent), "0 to 100; 0 is all")
	case f.Lag > keptPast:
		return config.Invalid("lag", f.Lag.String(), "a duration of up to "+keptPast.String())
	}
	return nil
}

// fillReply fills in the defaults of what a fault answers.
func (a *armedFault) fillReply() {
	status, code := 0, ""
	switch a.Do {
	case FaultError:
		status, code = 500, "InternalError"
	case FaultErrorAfter:
		status, code = 503, "ServiceUnavailable"
	case FaultBrownOut:
		status, code = 503, "ServiceUnavailable"
	case FaultThrottle:
		status, code = 400, "Throttling"
	case FaultDate:
		a.Skew = cmp.Or(a.Skew, -20*time.Minute)
		return
	case FaultStale, FaultEcho, FaultLate:
		a.Lag = cmp.Or(a.Lag, 2*time.Second)
		return
	default:
		return
	}
	if a.Code == "" {
		a.Code = code
	} else {
		status = wire.StatusOf(a.Action, a.Code, status)
	}
	if a.Status == 0 {
		a.Status = status
	}
	if a.Message == "" {
		a.Message = "The request was refused with " + a.Code + "."
		if a.Do == FaultThrottle {
			a.Message = "Request was denied due to request throttling."
		}
	}
}

func (l *faultList) add(a *armedFault) Fault {
	l.lastID++
	a.ID, a.Seen, a.Hit = l.lastID, 0, 0
	l.armed = append(l.armed, a)
	return a.Fault
}

func (l *faultList) list() []Fault {
	return wire.Each(l.armed, func(a *armedFault) Fault { return a.Fault })
}

// flood is how many blanks follow a reply with FaultFlood.
const flood = 64 << 20

// refusalBefore is the refusal of a call that is not to have an effect.
func (f Fault) refusalBefore() *wire.Refusal {
	switch f.Do {
	case FaultError, FaultThrottle, FaultBrownOut:
		return &wire.Refusal{Status: f.Status, Code: f.Code, Message: f.Message}
	}
	return nil
}

// delayAfter is how much later the reply begins.
func (f Fault) delayAfter() time.Duration {
	if f.Do == FaultTrickle {
		return 0 // it is the body that takes the time
	}
	return f.DelayAfter
}

// unheard tells whether the call is not to have an effect, and nobody says so.
func (f Fault) unheard() bool {
	return f.Do == FaultLostRequest || f.Do == FaultRefused || f.Do == FaultLate
}

// hides says whether a read must not show what has the ID.
func (f Fault) hides(id string) bool { return f.Do == FaultHidden && slices.Contains(f.Hide, id) }

// spoil does to a reply what the fault does after the effect.
func (f Fault) spoil(x *exchange, r wire.Reply) wire.Reply {
	switch f.Do {
	case FaultLostRequest, FaultLostReply, FaultLate:
		r.Lost, r.Status = true, 0
	case FaultRefused:
		r.Lost, r.Status, r.Errno = true, 0, syscall.ECONNREFUSED
	case FaultReset:
		r.Lost, r.Status, r.Errno = true, 0, syscall.ECONNRESET
	case FaultTrickle:
		r.Over = f.DelayAfter
	case FaultDate:
		r.Skew = f.Skew
	case FaultFlood:
		r.Flood = flood
	case FaultErrorAfter:
		after := *x
		after.refusal = &wire.Refusal{Status: f.Status, Code: f.Code, Message: f.Message}
		r = after.render(nil)
	case FaultTruncated:
		r.Status, r.Half = 200, true
	case FaultEmpty:
		r.Status, r.Content, r.Body = 200, nil, nil
	case FaultHTML:
		r.Status, r.ContentType, r.Content = 502, "text/html", nil
		r.Body = []byte("<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body><center><h1>502 Bad Gateway</h1></center></body>\r\n</html>\r\n")
	}
	return r
}
