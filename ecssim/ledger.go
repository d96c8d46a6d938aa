package ecssim

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/topodisk/topodisk/ecssim/actions"
)

// Call is one request as the ledger has it.
type Call struct {
	Number    int               `json:"number"` // from 1, in the order of effect
	Time      time.Time         `json:"time"`   // of the effect
	Action    string            `json:"action"` // empty if the request named none that exists
	Code      string            `json:"code"`   // of what happened; empty for success
	Status    int               `json:"status"` // HTTP status of the reply; 0 if none was sent
	RequestID string            `json:"requestId"`
	UserAgent string            `json:"userAgent"`
	Disk      string            `json:"disk,omitempty"`   // the disk concerned
	Params    map[string]string `json:"params,omitempty"` // without those of the protocol
	Fault     string            `json:"fault,omitempty"`  // the Do of the fault that hit it
	Took      time.Duration     `json:"tookNanoseconds"`  // from the request's arrival to its reply
	// Settles is the time from the effect until the change that the call began is over: a disk is Available, In_use or
	// detached. Zero if it began none.
	Settles time.Duration `json:"settlesNanoseconds,omitempty"`
}

// ledger is the last calls, and counts of all.
type ledger struct {
	size    int
	calls   []loggedCall // a ring: the oldest is the one at total modulo size
	total   int
	counts  map[string]map[string]int // by action and code, "" for success
	unknown map[string]int            // by action and parameter: Action Name.N
	stats   statistics
}

// loggedCall is a Call whose parameters are in one text of their own, for a
// map of them would keep the whole request in memory.
type loggedCall struct {
	Call
	params string // names and values, each with a zero byte behind it
}

// log packs the parameters of a call.
func (c Call) log() loggedCall {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(c.Params)) {
		text.WriteString(strings.ReplaceAll(name, "\x00", "") + "\x00" + strings.ReplaceAll(c.Params[name], "\x00", "") + "\x00")
	}
	c.Params, c.Disk, c.UserAgent = nil, strings.Clone(c.Disk), strings.Clone(c.UserAgent)
	return loggedCall{c, strings.Clone(text.String())} // without what the builder has to spare
}

// read returns the call with its parameters.
func (l loggedCall) read() Call {
	c := l.Call
	c.Params = map[string]string{}
	fields := strings.Split(l.params, "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		c.Params[fields[i]] = fields[i+1]
	}
	return c
}

func newLedger(size int) ledger {
	return ledger{size: size, counts: map[string]map[string]int{}, unknown: map[string]int{}, stats: newStatistics()}
}

// write notes an exchange that has taken effect.
func (l *ledger) write(x *exchange) {
	c := Call{
		Number: l.total + 1, Time: x.At, Action: x.Action.Name, Status: x.reply.Status, RequestID: x.RequestID, UserAgent: x.agent,
		Disk: x.Disk, Params: maps.Clone(map[string]string(x.Sent)), Fault: x.Fault.Do, Took: x.answerAt.Sub(x.arrived),
	}
	if !x.Ends.IsZero() {
		c.Settles = x.Ends.Sub(x.At)
	}
	if c.Params["OIDCToken"] != "" {
		c.Params["OIDCToken"] = "(not kept)" // whoever has it can assume the role
	}
	switch {
	case x.refusal != nil:
		c.Code = x.refusal.Code
	case x.Fault.Unheard():
		c.Code = x.Fault.Do
	}
	if len(l.calls) < l.size {
		l.calls = append(l.calls, c.log())
	} else {
		l.calls[l.total%l.size] = c.log()
	}
	l.total++
	if l.counts[c.Action] == nil {
		l.counts[c.Action] = map[string]int{}
	}
	l.counts[c.Action][c.Code]++
	l.stats.count(c)
}

// maxUnknown is how many names of unknown parameters are counted.
const maxUnknown = 1000

// kept returns the call at a place among those that are kept, the oldest first.
func (l *ledger) kept(i int) loggedCall {
	if len(l.calls) < l.size {
		return l.calls[i]
	}
	return l.calls[(l.total+i)%l.size]
}

// countUnknown counts the parameters that an action does not take. The real
// ECS ignores them, and so hides many a misspelling.
func (l *ledger) countUnknown(x *actions.Request) {
	for _, name := range x.Unknown() {
		key := x.Action.Name + " " + name
		if _, is := l.unknown[key]; is || len(l.unknown) < maxUnknown {
			l.unknown[key]++
		}
	}
}

// Calls returns the last calls, the oldest first, at most Config.LedgerSize.
func (s *Server) Calls() []Call {
	var calls []Call
	s.look(func(time.Time) {
		l := &s.ledger
		for i := range l.calls {
			calls = append(calls, l.kept(i).read())
		}
	})
	return calls
}

// Count returns how many calls of an action ended with a code, "" being
// success, since the start.
func (s *Server) Count(action, code string) int {
	return seen(s, func(time.Time) int { return s.ledger.counts[action][code] })
}

func (l *ledger) copyCounts() map[string]map[string]int {
	counts := map[string]map[string]int{}
	for action, codes := range l.counts {
		counts[action] = maps.Clone(codes)
	}
	return counts
}

func (l *ledger) copyUnknown() map[string]int { return maps.Clone(l.unknown) }
