package main

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/topodisk/topodisk/test/need"
)

// results are the tests that have ended, and why some were skipped.
type results struct {
	tests, failed, skipped int
	skips                  map[string]int  // tests by reason; one that needs two things counts for both
	passed, broken         map[string]bool // packages by path
	without                string          // what the tests were run without
}

// count takes the end of a test and what it has said.
func (r *results) count(action, said string) {
	r.tests++
	switch action {
	case "fail":
		r.failed++
	case "skip":
		r.skipped++
		for _, reason := range reasons(said) {
			r.skips[reason]++
		}
	}
}

var (
	noise    = regexp.MustCompile(`(?m)^\s*(=== |--- ).*\n`)
	position = regexp.MustCompile(`^\s*\S+\.go:\d+: `)
)

// reasons are why a test was skipped: what it needs and what that comes from, or else what it says.
func reasons(said string) []string {
	var all []string
	for _, n := range need.Said(said) {
		reason := "for want of " + n.From
		if n.From != "root" {
			reason = fmt.Sprintf("for want of %s (%s)", n.Name, n.From)
		}
		if !slices.Contains(all, reason) {
			all = append(all, reason)
		}
	}
	if len(all) > 0 {
		return all
	}
	text := strings.TrimSpace(noise.ReplaceAllString(said, ""))
	return []string{fmt.Sprintf("as %q", cmp.Or(position.ReplaceAllString(text, ""), "no reason is given"))}
}

// String is the last line.
func (r *results) String() string {
	line := r.sums()
	if r.without != "" {
		line += "; " + r.without
	}
	return line
}

func (r *results) sums() string {
	line := fmt.Sprintf("%d tests", r.tests)
	if r.failed > 0 {
		line += fmt.Sprintf(", %d failed", r.failed)
	}
	if r.skipped == 0 {
		return line + ", none skipped"
	}
	line += fmt.Sprintf(", %d skipped: ", r.skipped)
	most := slices.SortedFunc(maps.Keys(r.skips), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.skips[b], r.skips[a]), cmp.Compare(a, b))
	})
	for n, reason := range most {
		if n > 0 {
			line += ", "
		}
		line += fmt.Sprintf("%d %s", r.skips[reason], reason)
	}
	return line
}
