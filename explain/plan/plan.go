// Package plan predicts what would happen to a cluster if topodisk were installed or took over from another driver, or if a zone lost its
// nodes or sold out. It does no I/O: Facts in, a Plan out. Package explain/plan/reader reads the Facts from a cluster.
package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topodisk/topodisk/explain"
	"github.com/topodisk/topodisk/internal/shell"
)

// Kind says what a Plan is about.
type Kind string

// The kinds.
const (
	KindInstall  Kind = "install"
	KindTakeover Kind = "takeover"
	KindDrain    Kind = "drain"
	KindSoldOut  Kind = "soldout"
)

// Effect is what would become of an object.
type Effect string

// The effects. Only a Note and what goes Elsewhere leave everything working.
const (
	Refused   Effect = "refused"   // by topodisk
	Blocks    Effect = "blocks"    // the plan, until somebody has dealt with it
	Waits     Effect = "waits"     // until the nodes or disks are back
	Deleted   Effect = "deleted"   // and nobody makes it anew
	Elsewhere Effect = "elsewhere" // in another zone, or of another disk type
	Note      Effect = "note"      // it stays as it is, and may surprise
)

// Finding is what would become of one object.
type Finding struct {
	Effect  Effect      `json:"effect"`
	Object  explain.Ref `json:"object"`
	Message string      `json:"message"`
}

// Serving is a workload that serves volumes or snapshots today.
type Serving struct {
	Object     explain.Ref `json:"object"`
	Serves     []string    `json:"serves"`               // CSI drivers, and SnapshotController
	Containers []string    `json:"containers,omitempty"` // the names of those that serve
	Images     []string    `json:"images,omitempty"`     // theirs
	ManagedBy  string      `json:"managedBy,omitempty"`  // the Helm release or ACK component; empty if no label tells
}

// Step is one thing to do, with all its commands.
type Step struct {
	Title string `json:"title"`
	// ByHand is what no command does.
	ByHand   string          `json:"byHand,omitempty"`
	Commands []shell.Command `json:"commands,omitempty"`
}

// Unchecked is what the plan can't tell.
type Unchecked struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// Plan is what would happen.
type Plan struct {
	Kind     Kind      `json:"plan"`
	Driver   string    `json:"driver"`
	Summary  string    `json:"summary"` // one sentence
	Serving  []Serving `json:"serving,omitempty"`
	Findings []Finding `json:"findings,omitempty"`
	// Steps are in the order in which they are to be done, and so is the way Back.
	Steps      []Step      `json:"steps,omitempty"`
	Back       []Step      `json:"back,omitempty"`
	NotChecked []Unchecked `json:"notChecked,omitempty"`
	// Incomplete says that something could not be read that the plan needs.
	Incomplete bool `json:"incomplete,omitempty"`
}

// Harms says whether anything would be refused, blocked, deleted or left waiting.
func (p *Plan) Harms() bool {
	return slices.ContainsFunc(p.Findings, func(f Finding) bool { return f.Effect != Note && f.Effect != Elsewhere })
}

// Count returns how many objects have one of the effects.
func (p *Plan) Count(effects ...Effect) int {
	n := 0
	for _, f := range p.Findings {
		if slices.Contains(effects, f.Effect) {
			n++
		}
	}
	return n
}

// find adds what would become of an object.
func (p *Plan) find(effect Effect, object explain.Ref, format string, args ...any) {
	p.Findings = append(p.Findings, Finding{effect, object, fmt.Sprintf(format, args...)})
}

// unchecked adds what the plan can't tell.
func (p *Plan) unchecked(what, format string, args ...any) {
	p.NotChecked = append(p.NotChecked, Unchecked{what, fmt.Sprintf(format, args...)})
}

// needs marks the plan incomplete if objects of the kinds could not be read.
func (p *Plan) needs(f *Facts, kinds ...string) {
	for _, u := range f.Unread {
		if slices.Contains(kinds, u.Kind) {
			p.Incomplete = true
			p.unchecked(u.Kind, "could not be read: %s", u.Reason)
		}
	}
}

// list returns the names in words: a, b and c; of more than most names it counts the rest.
func list(names []string, most int) string {
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// counted returns a number with its noun: 1 claim, 2 claims.
func counted(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "s"):
		return fmt.Sprintf("%d %ses", n, noun)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
