// Package facts lists how ECS behaves, according to its documentation and to
// reports of its clients: each fact with its source and a check that works
// against a simulator in this process and over HTTP against any endpoint, and
// reports what it observes.
package facts

import (
	"slices"

	"github.com/topodisk/topodisk/ecssim"
)

// Fact is one thing that ECS does.
type Fact struct {
	Action string // of the API, or a page of its documentation
	Says   string // the fact; if it has Ways, what they are about
	Source string
	Needs  Need
	// Ways are what sources say where they disagree; the first is what the
	// simulator does by default. A fact without Ways is what Says says.
	Ways []Way

	quick   bool                // one call that is refused
	check   func(*Probe)        // of a fact without Ways
	observe func(*Probe) string // of a fact with Ways: what one of them says
}

// Way is one of several answers to the same question.
type Way struct {
	Says string
	// Settings make the simulator behave so: values of ecssim.Settings by
	// name. "+x" and "-x" change one element of a list.
	Settings map[string]string
}

// Need is what a fact takes to be asked. Each includes the ones before it.
type Need int

// The needs.
const (
	Nothing   Need = iota
	Disks          // makes disks in a zone
	Instance       // attaches disks to an instance
	Simulator      // sets up what only a simulator lets one set up, or makes many disks
)

// String is the need as the page shows it.
func (n Need) String() string {
	return [...]string{"nothing", "disks", "an instance", "a simulator"}[n]
}

// Name identifies the fact in reports.
func (f Fact) Name() string { return f.Action + ": " + f.Says }

// Apply makes a Config behave as the way says. The error is a
// *ecssim.ConfigError.
func (w Way) Apply(c *ecssim.Config) error {
	for _, s := range ecssim.Settings() {
		if value, ok := w.Settings[s.Name]; ok {
			if err := s.Set(c, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// Facts returns all facts, action by action.
func Facts() []Fact {
	return slices.Concat(wireFacts(), diskFacts(), attachmentFacts(), snapshotFacts(), resourceFacts(), tagFacts(), accountFacts())
}

// one is a fact on which sources agree.
func one(action, says, source string, needs Need, check func(*Probe)) Fact {
	return Fact{Action: action, Says: says, Source: source, Needs: needs, check: check}
}

// several is a fact on which sources disagree, or that differs from account to
// account.
func several(action, about, source string, needs Need, observe func(*Probe) string, ways ...Way) Fact {
	return Fact{Action: action, Says: about, Source: source, Needs: needs, observe: observe, Ways: ways}
}

// way is a Way that one setting makes.
func way(says, setting, value string) Way {
	return Way{Says: says, Settings: map[string]string{setting: value}}
}

// Sources that many facts share.
const (
	page    = "API page"
	table   = "API page, error codes"
	common  = "API page on common parameters and errors"
	signing = "API page on signatures"
	seen    = "seen by clients"
)
