package ecssim

import (
	"maps"
	"slices"
	"time"
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
	calls   []Call
	total   int
	counts  map[string]map[string]int // by action and code, "" for success
	unknown map[string]int            // by action and parameter: Action Name.N
	stats   statistics
}

func newLedger(size int) ledger {
	return ledger{size: size, counts: map[string]map[string]int{}, unknown: map[string]int{}, stats: newStatistics()}
}

// write notes an exchange that has taken effect.
func (l *ledger) write(x *exchange) {
	c := Call{
		Number: l.total + 1, Time: x.at, Action: x.action.name, Status: x.reply.status, RequestID: x.requestID, UserAgent: x.agent,
		Disk: x.disk, Params: maps.Clone(map[string]string(x.sent)), Fault: x.fault.Do, Took: x.answerAt.Sub(x.arrived),
	}
	if !x.ends.IsZero() {
		c.Settles = x.ends.Sub(x.at)
	}
	if c.Params["OIDCToken"] != "" {
		c.Params["OIDCToken"] = "(not kept)" // whoever has it can assume the role
	}
	switch {
	case x.refusal != nil:
		c.Code = x.refusal.code
	case x.fault.unheard():
		c.Code = x.fault.Do
	}
	l.total++
	if len(l.calls) == l.size {
		l.calls = l.calls[1:]
	}
	l.calls = append(l.calls, c)
	if l.counts[c.Action] == nil {
		l.counts[c.Action] = map[string]int{}
	}
	l.counts[c.Action][c.Code]++
	l.stats.count(c)
}

// countUnknown counts the parameters that an action does not take. The real
// ECS ignores them, and so hides many a misspelling.
func (l *ledger) countUnknown(x *exchange) {
	for _, name := range x.unknown() {
		l.unknown[x.action.name+" "+name]++
	}
}

// Calls returns the last calls, the oldest first, at most Config.LedgerSize.
func (s *Server) Calls() []Call {
	var calls []Call
	s.look(func(time.Time) { calls = slices.Clone(s.ledger.calls) })
	return calls
}

// Count returns how many calls of an action ended with a code, "" being
// success, since the start.
func (s *Server) Count(action, code string) int {
	n := 0
	s.look(func(time.Time) { n = s.ledger.counts[action][code] })
	return n
}

func (l *ledger) copyCounts() map[string]map[string]int {
	counts := map[string]map[string]int{}
	for action, codes := range l.counts {
		counts[action] = maps.Clone(codes)
	}
	return counts
}

func (l *ledger) copyUnknown() map[string]int { return maps.Clone(l.unknown) }
