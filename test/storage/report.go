package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/topodisk/topodisk/test/lab/programs"
)

// result is what became of one test.
type result struct {
	full    string // name, as Ginkgo's filters see it
	name    string // without what all names have
	state   string // passed, failed, skipped (by itself) or left out (by a filter)
	reason  string
	seconds float64
}

// results are what became of the tests, and how long all of them took.
type results struct {
	tests []result
	took  time.Duration
}

// specReport is what is needed of Ginkgo's report.
type specReport struct {
	ContainerHierarchyTexts []string
	LeafNodeType            string
	LeafNodeText            string
	State                   string
	RunTime                 time.Duration
	Failure                 struct{ Message string }
}

// readReports reads of Ginkgo's reports what is about the driver, each test with the class that it needs. Of a test that
// several tell of, the last one counts that has run it.
func readReports(paths ...string) (all results, err error) {
	byName := map[string]result{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return all, err
		}
		var suites []struct {
			RunTime     time.Duration
			SpecReports []specReport
		}
		if err := json.Unmarshal(text, &suites); err != nil {
			return all, fmt.Errorf("%s: %w", path, err)
		}
		for _, suite := range suites {
			all.took += suite.RunTime
			for _, spec := range suite.SpecReports {
				if _, known := byName[spec.name()]; spec.LeafNodeType == "It" && chosen(spec.name()) && (!known || spec.result().state != leftOut) {
					byName[spec.name()] = spec.result()
				}
			}
		}
	}
	all.tests = slices.SortedFunc(maps.Values(byName), func(a, b result) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

func (s specReport) name() string {
	return strings.Join(slices.Concat(s.ContainerHierarchyTexts, []string{s.LeafNodeText}), " ")
}

// driverIs stands before what is of interest in a name.
var driverIs = regexp.MustCompile(`^` + ours + ` \[Driver: [^]]+\] `)

func (s specReport) result() result {
	r := result{full: s.name(), name: driverIs.ReplaceAllString(s.name(), ""), state: s.State, reason: s.Failure.Message, seconds: s.RunTime.Seconds()}
	switch reason := reasonFor(s.name()); {
	case reason != "":
		r.state, r.reason = leftOut, reason
	case s.State == "skipped" && s.Failure.Message == "":
		r.state, r.reason = leftOut, "Not run this time"
	case s.State != "passed" && s.State != "skipped":
		r.state = "failed"
	}
	return r
}

const leftOut = "left out"

// in returns the results in one state.
func (all results) in(state string) []result {
	return slices.DeleteFunc(slices.Clone(all.tests), func(r result) bool { return r.state != state })
}

// unseen returns those of some tests that none has passed of: if Kubernetes calls them otherwise by now, they would be
// missed by nobody.
func (all results) unseen(tests []string) []string {
	passed := all.in("passed")
	return slices.DeleteFunc(slices.Clone(tests), func(tests string) bool {
		return slices.ContainsFunc(passed, func(r result) bool { return matches(tests, r.full) })
	})
}

func (all results) summary() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped, %d left out, in %.0f minutes",
		len(all.in("passed")), len(all.in("failed")), len(all.in("skipped")), len(all.in(leftOut)), all.took.Minutes())
}

// counts are the results for programs. Choices of tests of which none has passed count as failures.
func (all results) counts(unseen int) []byte {
	return fmt.Appendf(nil, `{"Passed": %d, "Failed": %d, "Skipped": %d}`, len(all.in("passed")), len(all.in("failed"))+unseen, len(all.in("skipped")))
}

// page is the results for people. Which tests were run is said in a word, and of which Kubernetes.
func (all results) page(which string, version programs.Version) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `# Kubernetes' own tests of storage

This page is written by %s: the results of the External Storage tests of Kubernetes %s, run on a lab of four real
nodes in three zones with csi-attacher, csi-resizer, csi-snapshotter and a simulated ECS whose disks are loop devices.
[driver.yaml](../test/storage/driver.yaml), [shared.yaml](../test/storage/shared.yaml) and
[zone.yaml](../test/storage/zone.yaml) declare the capabilities of the driver, each with a class of its own.
With [smallest.yaml](../test/storage/smallest.yaml), claims that are smaller than any disk get the smallest disk.
Tests that stop kubelets run after all others, one at a time.

Of %s tests: %s.

`, "`make e2e-storage`", version, which, all.summary())
	for _, part := range []struct{ state, title string }{
		{"failed", "Failed"}, {"passed", "Passed"}, {"skipped", "Skipped, with the reason that the tests give"}, {leftOut, "Left out"},
	} {
		some := all.in(part.state)
		if len(some) == 0 {
			continue
		}
		fmt.Fprintf(&b, "## %s\n", part.title)
		byReason := map[string][]string{}
		var reasons []string
		for _, r := range some {
			reason := firstLine(r.reason)
			if byReason[reason] == nil {
				reasons = append(reasons, reason)
			}
			byReason[reason] = append(byReason[reason], r.name)
		}
		slices.Sort(reasons)
		for _, reason := range reasons {
			if reason != "" {
				fmt.Fprintf(&b, "### %s\n", reason)
				if comesTo := meaning(reason); comesTo != "" {
					fmt.Fprintf(&b, "%s\n\n", comesTo)
				}
			}
			for _, name := range byReason[reason] {
				fmt.Fprintf(&b, "- %s\n", name)
			}
			fmt.Fprintln(&b)
		}
	}
	return b.Bytes()
}

// firstLine is enough of a reason.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
