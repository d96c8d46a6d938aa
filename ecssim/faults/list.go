package faults

import (
	"math/rand/v2"
	"regexp"
	"time"

	"github.com/topodisk/topodisk/ecssim/wire"
)

// List is the faults in force.
type List struct {
	actions []string // that a fault may be of
	stale   []string // those of them that can lag behind
	armed   []*armedFault
	lastID  int
	lots    *rand.Rand
}

// armedFault is a fault that was found valid.
type armedFault struct {
	Fault
	params map[string]*regexp.Regexp
	agent  *regexp.Regexp
	begins time.Time
}

// NewList returns an empty list of faults of some actions, of which some
// can lag behind. Its lots are drawn by a seed.
func NewList(actions, stale []string, seed uint32) *List {
	return &List{actions: actions, stale: stale, lots: rand.New(rand.NewPCG(uint64(seed), uint64(len(Kinds))))}
}

// Add appends a fault, and returns it with its ID and with what was left out.
// The error is a *config.Error.
func (l *List) Add(f Fault, now time.Time) (Fault, error) {
	a, err := l.arm(f)
	if err != nil {
		return Fault{}, err
	}
	l.lastID++
	a.ID, a.Seen, a.Hit, a.begins = l.lastID, 0, 0, now.Add(f.From)
	l.armed = append(l.armed, a)
	return a.Fault, nil
}

// Clear empties the list.
func (l *List) Clear() { l.armed = nil }

// All returns the faults, with how often each has struck.
func (l *List) All() []Fault {
	return wire.Each(l.armed, func(a *armedFault) Fault { return a.Fault })
}

// Call is what a fault goes by.
type Call struct {
	Action  string
	Params  wire.Parameters
	Agent   string
	Arrived time.Time
}

// Pick returns the fault that hits a call; the zero Fault hits none.
func (l *List) Pick(c Call) Fault {
	for _, a := range l.armed {
		if !a.matches(c) {
			continue
		}
		a.Seen++
		if a.Seen > a.Skip && (a.Count == 0 || a.Hit < a.Count) && l.drawn(a.Percent) {
			a.Hit++
			return a.Fault
		}
	}
	return Fault{}
}

// drawn draws a lot.
func (l *List) drawn(percent int) bool { return percent == 0 || l.lots.IntN(100) < percent }

func (a *armedFault) matches(c Call) bool {
	if c.Arrived.Before(a.begins) || a.For > 0 && !c.Arrived.Before(a.begins.Add(a.For)) || !a.agent.MatchString(c.Agent) {
		return false
	}
	if a.Action != "" && a.Action != c.Action {
		return false
	}
	for name, re := range a.params {
		if !re.MatchString(c.Params[name]) {
			return false
		}
	}
	return true
}
