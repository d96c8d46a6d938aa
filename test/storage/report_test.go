package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// written is what Ginkgo writes, as far as it is read.
const written = `[{"RunTime": 180000000000, "SpecReports": [
 {"LeafNodeType": "SynchronizedBeforeSuite", "State": "passed"},
 {"ContainerHierarchyTexts": ["External Storage [Driver: x]", "[Testpattern: Dynamic PV (xfs)] volumes"], "LeafNodeType": "It", "LeafNodeText": "should store data", "State": "passed", "RunTime": 2000000000},
 {"ContainerHierarchyTexts": ["External Storage [Driver: x]", "[Testpattern: Dynamic PV] topology"], "LeafNodeType": "It", "LeafNodeText": "should fail", "State": "skipped", "Failure": {"Message": "not supported\nmore"}},
 {"ContainerHierarchyTexts": ["External Storage [Driver: x] of one zone", "[Testpattern: Dynamic PV] topology"], "LeafNodeType": "It", "LeafNodeText": "needs no zone", "State": "skipped", "Failure": {}},
 {"ContainerHierarchyTexts": ["External Storage [Driver: x]", "[Testpattern: Dynamic PV (ntfs)] volumes"], "LeafNodeType": "It", "LeafNodeText": "is for Windows", "State": "skipped", "Failure": {}},
 {"ContainerHierarchyTexts": ["[sig-node] Pods"], "LeafNodeType": "It", "LeafNodeText": "is for kubelets", "State": "passed"},
 {"ContainerHierarchyTexts": ["External Storage [Driver: x]", "[Testpattern: Dynamic PV] volumes"], "LeafNodeType": "It", "LeafNodeText": "never ends", "State": "timedout", "Failure": {"Message": "too late"}},
 {"ContainerHierarchyTexts": ["External Storage [Driver: x]", "[Testpattern: Dynamic PV] volumes"], "LeafNodeType": "It", "LeafNodeText": "breaks", "State": "panicked", "Failure": {"Message": "nil"}}
]}]`

func TestReportTellsWhatPassedFromWhatDidNotRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	if err := os.WriteFile(path, []byte(written), 0o644); err != nil {
		t.Fatal(err)
	}
	all, err := readReports(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := all.summary(), "1 passed, 2 failed, 1 skipped, 1 left out, in 3 minutes"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	page := string(all.page("some", "1.37"))
	for _, want := range []string{
		"tests of Kubernetes 1.37, run on a lab", "1 passed, 2 failed, 1 skipped, 1 left out, in 3 minutes", "### too late\n- [Testpattern: Dynamic PV] volumes never ends\n", "### not supported\n- [Testpattern: Dynamic PV] topology should fail\n",
		"## Left out\n### Nodes with Windows: the driver supports Linux only.\n- [Testpattern: Dynamic PV (ntfs)] volumes is for Windows\n",
		"## Passed\n- [Testpattern: Dynamic PV (xfs)] volumes should store data\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	for _, not := range []string{"needs no zone", "is for kubelets"} {
		if strings.Contains(page, not) {
			t.Errorf("the page has %q", not)
		}
	}
	if got := all.unseen([]string{`xfs`, `topology`}); !slices.Equal(got, []string{`topology`}) {
		t.Errorf("none passed of %q, want topology alone", got)
	}
}

// later is the report of another part of a run.
const later = `[{"RunTime": 60000000000, "SpecReports": [
 {"ContainerHierarchyTexts": ["External Storage [Driver: x]", "[Testpattern: Dynamic PV (xfs)] volumes"], "LeafNodeType": "It", "LeafNodeText": "should store data", "State": "skipped", "Failure": {}},
 {"ContainerHierarchyTexts": ["External Storage [Driver: x]", "[Testpattern: Dynamic PV] volumes"], "LeafNodeType": "It", "LeafNodeText": "breaks", "State": "passed"}
]}]`

func TestOfSeveralReportsTheLastThatRanATestCounts(t *testing.T) {
	var paths []string
	for i, text := range []string{written, later} {
		paths = append(paths, filepath.Join(t.TempDir(), fmt.Sprint(i)))
		if err := os.WriteFile(paths[i], []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	all, err := readReports(paths...)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := all.summary(), "2 passed, 1 failed, 1 skipped, 1 left out, in 4 minutes"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestReportThatIsNoneIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	if err := os.WriteFile(path, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readReports(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
	if _, err := readReports(path + "x"); err == nil {
		t.Error("a report that isn't there is no error")
	}
}
