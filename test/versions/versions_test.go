package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/topodisk/topodisk/test/golden"
	"github.com/topodisk/topodisk/test/lab/programs"
)

const root = "../.."

func TestCompatibilityPageIsCurrent(t *testing.T) {
	made, err := render(root)
	if err != nil {
		t.Fatal(err)
	}
	golden.Page(t, "../../docs/compatibility.md", made)
}

func TestPageHasEveryVersionThatTheChartAsksFor(t *testing.T) {
	asked, err := versionsAsked(root)
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, f := range features {
		told = append(told, f.since)
	}
	slices.Sort(told)
	slices.Sort(asked)
	if asked, told = slices.Compact(asked), slices.Compact(told); len(asked) == 0 || !slices.Equal(asked, told) {
		t.Errorf("the chart's templates ask for Kubernetes %v, the page tells of %v", asked, told)
	}
}

func TestPageHasEverySidecarOfTheChart(t *testing.T) {
	c, err := readChart(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"csi-attacher", "csi-provisioner", "csi-resizer", "csi-snapshotter"} {
		if !strings.HasPrefix(c.sidecars[name], "v") {
			t.Errorf("%s has the version %q; the chart has %v", name, c.sidecars[name], c.sidecars)
		}
	}
	if c.kubeVersion == "" {
		t.Error("Chart.yaml has no kubeVersion")
	}
}

func TestOnlyVersionsThatCanBeRunAreChosen(t *testing.T) {
	got, err := choose("1.37, 1.33,1.37")
	if err != nil || !slices.Equal(got, []programs.Version{"1.37", "1.33"}) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, text := range []string{"", "1.32", "1.33,ci", "1.33;1.34", "newest"} {
		if _, err := choose(text); err == nil || !strings.Contains(err.Error(), "allowed are "+programs.Allowed()) || !strings.Contains(err.Error(), "KUBE="+text) {
			t.Errorf("KUBE=%s: %v", text, err)
		}
	}
}

// CI has programs of one other version to build, and no results to keep.
func TestCIRunsTheOldestVersion(t *testing.T) {
	if got, err := choose(inCI); err != nil || !slices.Equal(got, []programs.Version{"1.33"}) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestEventsAreCounted(t *testing.T) {
	var out, failed strings.Builder
	got, err := countEvents(strings.NewReader(`building
{"Action":"output","Test":"TestA","Output":"says\n"}
{"Action":"pass","Test":"TestA/case"}
{"Action":"pass","Test":"TestA"}
{"Action":"output","Test":"TestB/case","Output":"got 1, want 2\n"}
{"Action":"fail","Test":"TestB/case"}
{"Action":"fail","Test":"TestB"}
{"Action":"skip","Test":"TestC"}
{"Action":"output","Output":"a data race\n"}
{"Action":"fail"}
`), &out, &failed)
	if want := (counts{Passed: 1, Failed: 1, Skipped: 1}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if want := "building\nsays\ngot 1, want 2\na data race\n"; out.String() != want {
		t.Errorf("the log is %q, want %q", out.String(), want)
	}
	if want := "got 1, want 2\na data race\n"; failed.String() != want {
		t.Errorf("of what failed it printed %q, want %q", failed.String(), want)
	}
}

func TestResultOfAnotherReleaseSaysSo(t *testing.T) {
	if got := otherRelease("1.37.2", "1.37.2"); got != "" {
		t.Errorf("the same release: %q", got)
	}
	if got := otherRelease("1.37.1", "1.37.2"); got != " (1.37.1)" {
		t.Errorf("another release: %q", got)
	}
}

func TestResultsAreShownByTheirCounts(t *testing.T) {
	for want, n := range map[string]counts{
		"passed": {Passed: 1}, "failed": {Failed: 1},
		"60 passed, 1 failed, 2 skipped": {Passed: 60, Failed: 1, Skipped: 2}, "0 passed, 0 failed, 1 skipped": {Skipped: 1},
	} {
		if got := (outcome{counts: n}).cell(); got != want {
			t.Errorf("%+v is shown as %q, want %q", n, got, want)
		}
	}
}
