// Package faults is what goes wrong, and how long things take: latencies,
// throttling, permissions that are lacking, and calls and replies that are lost,
// late or false. It knows calls by their names and parameters, not what they do.
package faults

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"syscall"
	"time"

	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// What a Fault does.
const (
	Error       = "error"        // the call is refused with Status, Code and Message and has no effect
	Throttled   = "throttle"     // Error with status 400 and code Throttling, unless Code says Throttling.User or the like
	LostRequest = "lost-request" // the connection is closed and the call has no effect
	LostReply   = "lost-reply"   // the call takes effect, then the connection is closed
	ErrorAfter  = "error-after"  // the call takes effect, then Status, Code and Message answer
	Truncated   = "truncated"    // the call takes effect, then status 200 comes with half its JSON
	Empty       = "empty"        // the call takes effect, then status 200 comes without a body
	HTML        = "html"         // the call takes effect, then status 502 comes with a page of HTML
	Delay       = "delay"        // the call is as usual but for DelayBefore and DelayAfter
	Stuck       = "stuck"        // the call is accepted, and what it sets going never ends, until Unstick
	Fails       = "fails"        // the call is accepted, and what it sets going fails in the end
	Stops       = "stops"        // the call is as usual, and then the instance that it names is Stopped
	Vanishes    = "vanishes"     // the call is as usual, and then the instance that it names is released
	BrownOut    = "brown-out"    // Error with status 503 and code ServiceUnavailable: a region that is not well; use Percent
	Refused     = "refused"      // the connection is refused; over a socket, where it has been accepted, it is reset; no effect
	Reset       = "reset"        // the call takes effect, then the connection is reset
	Trickle     = "trickle"      // the call takes effect, then the body of its reply comes bit by bit, all of it after DelayAfter
	Stale       = "stale"        // a read of disks, instances, snapshots, their groups, tasks or tags shows them as they were Lag ago
	Nothing     = "nothing"      // a read finds nothing
	Partial     = "partial"      // a read gives half of its page; by NextToken the rest is to be had, by PageNumber it is left out
	Duplicate   = "duplicate"    // the call takes effect, and then once more, and the second reply is sent: a proxy asked again
	Echo        = "echo"         // the call is as usual, and takes effect once more Lag after its reply
	Late        = "late"         // the connection is closed, and the request arrives Lag later, if its time stamp is still taken then
	Hidden      = "hidden"       // a read doesn't show the disks, instances, snapshots and groups of Hide
	Ignored     = "ignored"      // the reply says success, with the ID of an order where there is one, and the call has no effect
	Date        = "date"         // the call is as usual, and the Date of its reply is off by Skew
	Flood       = "flood"        // the call takes effect, then the body of its reply is followed by 64 MiB of blanks
)

// Kinds are the values of Fault.Do.
var Kinds = []string{
	Error, Throttled, LostRequest, LostReply, ErrorAfter,
	Truncated, Empty, HTML, Delay, Stuck, Fails, Stops, Vanishes,
	BrownOut, Refused, Reset, Trickle, Stale, Nothing, Partial, Duplicate, Echo,
	Late, Hidden, Ignored, Date, Flood,
}

// Fault is a misbehaviour and the calls that it hits. A call is hit by the
// first fault in the list that matches it and whose turn it is. What the
// caller of LostRequest and of LostReply sees is the same.
type Fault struct {
	ID     int               `json:"id"`               // given when it is added
	Action string            `json:"action"`           // of the calls that match; empty for all
	Params map[string]string `json:"params,omitempty"` // regular expressions by parameter; those absent are ""
	Agent  string            `json:"agent,omitempty"`  // regular expression of the User-Agent; empty for all
	Skip   int               `json:"skip"`             // how many matching calls go free first
	Count  int               `json:"count"`            // how many it then hits; 0 for all, until the list is emptied
	// Percent is how many of a hundred of these calls are hit, by lot; 0 is all.
	// With one seed and one order of calls the lots are the same.
	Percent int           `json:"percent,omitempty"`
	From    time.Duration `json:"-"` // from when it is added until the fault begins
	For     time.Duration `json:"-"` // from its beginning to its end; 0 is for ever

	Do      string `json:"do"`                // one of Kinds
	Status  int    `json:"status,omitempty"`  // of the reply; default that of the Code, else 500; 400 with Throttled, 503 with ErrorAfter and BrownOut
	Code    string `json:"code,omitempty"`    // of the reply; default InternalError, ServiceUnavailable
	Message string `json:"message,omitempty"` // of the reply; default a sentence with the code

	DelayBefore time.Duration `json:"-"`              // from the request to its effect, with any Do
	DelayAfter  time.Duration `json:"-"`              // from the effect to the reply, on top of the latency
	Lag         time.Duration `json:"-"`              // of Stale, Echo and Late; default 2 s, at most 2 min
	Hide        []string      `json:"hide,omitempty"` // IDs, of Hidden
	Skew        time.Duration `json:"-"`              // of Date; less than zero is behind; default 20 min behind

	Seen int `json:"seen"` // calls that matched so far
	Hit  int `json:"hit"`  // calls that were hit so far
}

// arm checks a fault and fills in its defaults.
func (l *List) arm(f Fault) (*armedFault, error) {
	a := &armedFault{Fault: f, params: map[string]*regexp.Regexp{}}
	if f.Action != "" && !slices.Contains(l.actions, f.Action) {
		return nil, config.Invalid("action", f.Action, `"" for all, or `+config.OneOf(l.actions))
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
	if !slices.Contains(Kinds, f.Do) {
		return nil, config.Invalid("do", f.Do, config.OneOf(Kinds))
	}
	switch {
	case f.Do == Delay && f.DelayBefore == 0 && f.DelayAfter == 0:
		return nil, config.Invalid("do", f.Do, "a delayBefore or a delayAfter above zero with it")
	case f.Do == Trickle && f.DelayAfter == 0:
		return nil, config.Invalid("do", f.Do, "a delayAfter above zero with it")
	case f.Do == Stale && f.Action != "" && !slices.Contains(l.stale, f.Action):
		return nil, config.Invalid("action", f.Action, `with `+Stale+` "", for all that can lag behind, or `+config.OneOf(l.stale))
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
	case f.Lag > MaxLag:
		return config.Invalid("lag", f.Lag.String(), "a duration of up to "+MaxLag.String())
	}
	return nil
}

// fillReply fills in the defaults of what a fault answers.
func (a *armedFault) fillReply() {
	status, code := 0, ""
	switch a.Do {
	case Error:
		status, code = 500, "InternalError"
	case ErrorAfter:
		status, code = 503, "ServiceUnavailable"
	case BrownOut:
		status, code = 503, "ServiceUnavailable"
	case Throttled:
		status, code = 400, "Throttling"
	case Date:
		a.Skew = cmp.Or(a.Skew, -20*time.Minute)
		return
	case Stale, Echo, Late:
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
		if a.Do == Throttled {
			a.Message = "Request was denied due to request throttling."
		}
	}
}

// MaxLag bounds Fault.Lag: how far back a stale read looks.
const MaxLag = 2 * time.Minute

// flood is how many blanks follow a reply with Flood.
const flood = 64 << 20

// RefusalBefore is the refusal of a call that is not to have an effect.
func (f Fault) RefusalBefore() *wire.Refusal {
	switch f.Do {
	case Error, Throttled, BrownOut:
		return &wire.Refusal{Status: f.Status, Code: f.Code, Message: f.Message}
	}
	return nil
}

// ReplyDelay is how much later the reply begins.
func (f Fault) ReplyDelay() time.Duration {
	if f.Do == Trickle {
		return 0 // it is the body that takes the time
	}
	return f.DelayAfter
}

// Unheard tells whether the call is not to have an effect, and nobody says so.
func (f Fault) Unheard() bool {
	return f.Do == LostRequest || f.Do == Refused || f.Do == Late
}

// Hides says whether a read must not show what has the ID.
func (f Fault) Hides(id string) bool { return f.Do == Hidden && slices.Contains(f.Hide, id) }

// Spoil does to a reply what the fault does after the effect. refused makes the
// reply of a refusal.
func (f Fault) Spoil(r wire.Reply, refused func(*wire.Refusal) wire.Reply) wire.Reply {
	switch f.Do {
	case LostRequest, LostReply, Late:
		r.Lost, r.Status = true, 0
	case Refused:
		r.Lost, r.Status, r.Errno = true, 0, syscall.ECONNREFUSED
	case Reset:
		r.Lost, r.Status, r.Errno = true, 0, syscall.ECONNRESET
	case Trickle:
		r.Over = f.DelayAfter
	case Date:
		r.Skew = f.Skew
	case Flood:
		r.Flood = flood
	case ErrorAfter:
		r = refused(&wire.Refusal{Status: f.Status, Code: f.Code, Message: f.Message})
	case Truncated:
		r.Status, r.Half = 200, true
	case Empty:
		r.Status, r.Content, r.Body = 200, nil, nil
	case HTML:
		r.Status, r.ContentType, r.Content = 502, "text/html", nil
		r.Body = []byte("<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body><center><h1>502 Bad Gateway</h1></center></body>\r\n</html>\r\n")
	}
	return r
}
