package ecssim

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"
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
)

// FaultKinds are the values of Fault.Do.
var FaultKinds = []string{
	FaultError, FaultThrottle, FaultLostRequest, FaultLostReply, FaultErrorAfter,
	FaultTruncated, FaultEmpty, FaultHTML, FaultDelay, FaultStuck, FaultFails, FaultStops, FaultVanishes,
}

// Fault is a misbehaviour and the calls that it hits. A call is hit by the
// first fault in the list that matches it and whose turn it is. What the
// caller of FaultLostRequest and of FaultLostReply sees is the same.
type Fault struct {
	ID     int               // given by AddFault
	Action string            // of the calls that match; empty for all
	Params map[string]string // regular expressions by parameter; those absent are ""
	Skip   int               // how many matching calls go free first
	Count  int               // how many it then hits; 0 for all, until ClearFaults

	Do      string // one of FaultKinds
	Status  int    // of the reply; default 500 for FaultError, 503 for FaultErrorAfter
	Code    string // of the reply; default InternalError, ServiceUnavailable
	Message string // of the reply; default a sentence with the code

	DelayBefore time.Duration // from the request to its effect, with any Do
	DelayAfter  time.Duration // from the effect to the reply, on top of the latency

	Seen int // calls that matched so far
	Hit  int // calls that were hit so far
}

// AddFault appends a fault to the list. Its error names the field that is
// wrong and what is allowed.
func (s *Server) AddFault(f Fault) error {
	_, err := s.addFault(f)
	return err
}

func (s *Server) addFault(f Fault) (Fault, error) {
	armed, err := arm(f)
	if err != nil {
		return Fault{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults.add(armed), nil
}

// ClearFaults empties the list. Calls that are under way keep theirs.
func (s *Server) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.armed = nil
}

// Faults returns the list, with how often each has struck.
func (s *Server) Faults() []Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults.list()
}

// faultList is the faults in force.
type faultList struct {
	armed  []*armedFault
	lastID int
}

// armedFault is a fault that was found valid.
type armedFault struct {
	Fault
	params map[string]*regexp.Regexp
}

// arm checks a fault and fills in its defaults.
func arm(f Fault) (*armedFault, error) {
	a := &armedFault{Fault: f, params: map[string]*regexp.Regexp{}}
	if f.Action != "" && !slices.Contains(ActionNames(), f.Action) {
		return nil, &ConfigError{"action", f.Action, `"" for all, or one of ` + quoted(ActionNames())}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Params)) {
		re, err := regexp.Compile(f.Params[name])
		if err != nil {
			return nil, &ConfigError{"params." + name, f.Params[name], "a regular expression: " + err.Error()}
		}
		a.params[name] = re
	}
	if !slices.Contains(FaultKinds, f.Do) {
		return nil, &ConfigError{"do", f.Do, "one of " + quoted(FaultKinds)}
	}
	for _, n := range []struct {
		name  string
		value int
	}{{"skip", f.Skip}, {"count", f.Count}, {"delayBefore", int(f.DelayBefore)}, {"delayAfter", int(f.DelayAfter)}} {
		if n.value < 0 {
			return nil, &ConfigError{n.name, fmt.Sprint(n.value), "zero or more"}
		}
	}
	if f.Do == FaultDelay && f.DelayBefore == 0 && f.DelayAfter == 0 {
		return nil, &ConfigError{"do", f.Do, "a delayBefore or a delayAfter above zero with it"}
	}
	if f.Status != 0 && (f.Status < 400 || f.Status > 599) {
		return nil, &ConfigError{"status", fmt.Sprint(f.Status), "400 to 599"}
	}
	a.fillReply()
	return a, nil
}

// fillReply fills in the defaults of what a fault answers.
func (a *armedFault) fillReply() {
	status, code := 0, ""
	switch a.Do {
	case FaultError:
		status, code = 500, "InternalError"
	case FaultErrorAfter:
		status, code = 503, "ServiceUnavailable"
	case FaultThrottle:
		status, code = 400, "Throttling"
	default:
		return
	}
	if a.Status == 0 {
		a.Status = status
	}
	if a.Code == "" {
		a.Code = code
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
	list := []Fault{}
	for _, a := range l.armed {
		list = append(list, a.Fault)
	}
	return list
}

// pick returns the fault that hits a call; the zero Fault hits none.
func (l *faultList) pick(x *exchange) Fault {
	for _, a := range l.armed {
		if !a.matches(x) {
			continue
		}
		a.Seen++
		if a.Seen > a.Skip && (a.Count == 0 || a.Hit < a.Count) {
			a.Hit++
			return a.Fault
		}
	}
	return Fault{}
}

func (a *armedFault) matches(x *exchange) bool {
	if a.Action != "" && a.Action != x.action.name {
		return false
	}
	for name, re := range a.params {
		if !re.MatchString(x.params[name]) {
			return false
		}
	}
	return true
}

// refusalBefore is the refusal of a call that is not to have an effect.
func (f Fault) refusalBefore() *refusal {
	if f.Do != FaultError && f.Do != FaultThrottle {
		return nil
	}
	return &refusal{f.Status, f.Code, f.Message}
}

// spoil does to a reply what the fault does after the effect.
func (f Fault) spoil(x *exchange, r reply) reply {
	switch f.Do {
	case FaultLostRequest, FaultLostReply:
		r.lost, r.status = true, 0
	case FaultErrorAfter:
		after := *x
		after.refusal = &refusal{f.Status, f.Code, f.Message}
		r = after.render(nil)
	case FaultTruncated:
		r.status, r.body = 200, r.body[:len(r.body)/2]
	case FaultEmpty:
		r.status, r.body = 200, nil
	case FaultHTML:
		r.status, r.contentType = 502, "text/html"
		r.body = []byte("<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body><center><h1>502 Bad Gateway</h1></center></body>\r\n</html>\r\n")
	}
	return r
}

// faultForm is a Fault in JSON.
type faultForm struct {
	ID          int               `json:"id"`
	Action      string            `json:"action"`
	Params      map[string]string `json:"params,omitempty"`
	Skip        int               `json:"skip"`
	Count       int               `json:"count"`
	Do          string            `json:"do"`
	Status      int               `json:"status,omitempty"`
	Code        string            `json:"code,omitempty"`
	Message     string            `json:"message,omitempty"`
	DelayBefore string            `json:"delayBefore,omitempty"` // as time.Duration prints it
	DelayAfter  string            `json:"delayAfter,omitempty"`
	Seen        int               `json:"seen"`
	Hit         int               `json:"hit"`
}

// MarshalJSON writes the fault in the form that the admin API takes: names in
// lower camel case, durations such as "1.5s".
func (f Fault) MarshalJSON() ([]byte, error) {
	form := faultForm{ID: f.ID, Action: f.Action, Params: f.Params, Skip: f.Skip, Count: f.Count, Do: f.Do,
		Status: f.Status, Code: f.Code, Message: f.Message, Seen: f.Seen, Hit: f.Hit}
	if f.DelayBefore != 0 {
		form.DelayBefore = f.DelayBefore.String()
	}
	if f.DelayAfter != 0 {
		form.DelayAfter = f.DelayAfter.String()
	}
	return json.Marshal(form)
}

// UnmarshalJSON reads the form that MarshalJSON writes, and refuses unknown
// names and wrong values with a *ConfigError.
func (f *Fault) UnmarshalJSON(text []byte) error {
	var form faultForm
	if err := decodeStrict(text, &form); err != nil {
		return err
	}
	before, err := readSpan("delayBefore", form.DelayBefore)
	if err != nil {
		return err
	}
	after, err := readSpan("delayAfter", form.DelayAfter)
	if err != nil {
		return err
	}
	*f = Fault{ID: form.ID, Action: form.Action, Params: form.Params, Skip: form.Skip, Count: form.Count, Do: form.Do,
		Status: form.Status, Code: form.Code, Message: form.Message, DelayBefore: before, DelayAfter: after, Seen: form.Seen, Hit: form.Hit}
	return nil
}
