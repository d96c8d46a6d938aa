package ecssim

import "math/rand/v2"

// newFaultList returns an empty list, whose lots are drawn by a seed.
func newFaultList(seed uint32) faultList {
	return faultList{lots: rand.New(rand.NewPCG(uint64(seed), uint64(len(FaultKinds))))}
}

// pick returns the fault that hits a call; the zero Fault hits none.
func (l *faultList) pick(x *exchange) Fault {
	for _, a := range l.armed {
		if !a.matches(x) {
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
func (l *faultList) drawn(percent int) bool { return percent == 0 || l.lots.IntN(100) < percent }

func (a *armedFault) matches(x *exchange) bool {
	if x.arrived.Before(a.begins) || a.For > 0 && !x.arrived.Before(a.begins.Add(a.For)) || !a.agent.MatchString(x.agent) {
		return false
	}
	if a.Action != "" && a.Action != x.action.name {
		return false
	}
	for name, re := range a.params {
		if !re.MatchString(x.Params[name]) {
			return false
		}
	}
	return true
}
