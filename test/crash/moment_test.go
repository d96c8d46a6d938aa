//go:build e2e

package crash

import (
	"fmt"
	"slices"
	"sync"
)

// moment is one side of a call: before whom it is for hears of it, or after it has been carried out and before the
// caller hears of that.
type moment struct {
	call  string // such as "CreateVolume", "CreateDisk", "POST persistentvolumes" or writeJournal
	after bool
	nth   int // from 1, counted from when the moment is awaited
}

func (m moment) String() string {
	when := "before"
	if m.after {
		when = "after"
	}
	return fmt.Sprintf("%s %s #%d", when, m.call, max(m.nth, 1))
}

// verdict is what becomes of a call that was held.
type verdict int

const (
	pass verdict = iota // it goes on
	lose                // before: it never arrives; after: its reply never does. The connection breaks.
)

func (v verdict) String() string { return [...]string{"pass", "lose"}[v] }

// held is a call that is stopped at a moment.
type held struct {
	at      string        // for people
	moment  moment        // nth counts down
	reached chan struct{} // closed when the call is there
	decided chan verdict
	once    sync.Once
}

// release lets the call go on, or not. Only the first word counts.
func (h *held) release(v verdict) { h.once.Do(func() { h.decided <- v }) }

// gates stop calls. All proxies share one.
type gates struct {
	mu    sync.Mutex
	armed []*held
	calls []string // all moments passed since the last reset, for the report of a failure

	frozen map[string]chan struct{} // by resource: watches of it say nothing until the channel is closed
}

// freeze holds back what watches of a resource say, so that the provisioner's cache of it stays as it is.
func (g *gates) freeze(resource string) (thaw func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.frozen == nil {
		g.frozen = map[string]chan struct{}{}
	}
	until := make(chan struct{})
	g.frozen[resource] = until
	return sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.frozen, resource)
		close(until)
	})
}

// awaitThaw returns when watches of the resource may speak.
func (g *gates) awaitThaw(resource string) {
	g.mu.Lock()
	until := g.frozen[resource]
	g.mu.Unlock()
	if until != nil {
		<-until
	}
}

// count says how often a call has come since the last call of passed.
func (g *gates) count(call string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for _, c := range g.calls {
		if c == (moment{call: call}).String() {
			n++
		}
	}
	return n
}

// stopAt has the next call of that kind held.
func (g *gates) stopAt(m moment) *held {
	g.mu.Lock()
	defer g.mu.Unlock()
	m.nth = max(m.nth, 1)
	h := &held{at: m.String(), moment: m, reached: make(chan struct{}), decided: make(chan verdict, 1)}
	g.armed = append(g.armed, h)
	return h
}

// forget lets a call go through that was to be held and hasn't come.
func (g *gates) forget(h *held) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.armed = slices.DeleteFunc(g.armed, func(o *held) bool { return o == h })
	h.release(pass)
}

// at is called by the proxies at each moment, and returns when the call may go on.
func (g *gates) at(call string, after bool) verdict {
	h := g.match(call, after)
	if h == nil {
		return pass
	}
	close(h.reached)
	return <-h.decided
}

// match counts the call, and takes the trap that it runs into.
func (g *gates) match(call string, after bool) *held {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls = append(g.calls, moment{call: call, after: after}.String())
	for i, h := range g.armed {
		if h.moment.call != call || h.moment.after != after {
			continue
		}
		if h.moment.nth--; h.moment.nth == 0 {
			g.armed = slices.Delete(g.armed, i, i+1)
			return h
		}
	}
	return nil
}

// passed returns the moments since the last call of it.
func (g *gates) passed() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	calls := g.calls
	g.calls = nil
	return calls
}
