package main

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
)

// events are what `go test -json` writes: of each, words for the action, the package, the test and the output.
func events(t *testing.T, all [][4]string) io.Reader {
	t.Helper()
	var text strings.Builder
	for _, e := range all {
		line, err := json.Marshal(event{e[0], e[1], e[2], e[3]})
		if err != nil {
			t.Fatal(err)
		}
		text.Write(append(line, '\n'))
	}
	return strings.NewReader(text.String() + "go: not JSON\n")
}

func TestOutputIsThatOfGoTestAndSkipsAreAddedUp(t *testing.T) {
	var out strings.Builder
	got, err := report(t.Context(), events(t, [][4]string{
		{"start", "a", "", ""},
		{"output", "a", "TestPass", "=== RUN   TestPass\n"}, {"output", "a", "TestPass", "    a_test.go:1: quiet\n"}, {"pass", "a", "TestPass", ""},
		{"output", "a", "TestDisk", "=== RUN   TestDisk\n"}, {"output", "a", "TestDisk", "    rig_test.go:40: needs mkfs.xfs (package xfsprogs): not found\n"},
		{"output", "a", "TestDisk", "        needs mounts (root): not permitted\n"}, {"output", "a", "TestDisk", "        needs loop devices (root): not permitted\n"},
		{"output", "a", "TestDisk", "--- SKIP: TestDisk (0.00s)\n"}, {"skip", "a", "TestDisk", ""},
		{"output", "a", "TestMount", "    rig_test.go:40: needs mounts (root): not permitted\n"}, {"skip", "a", "TestMount", ""},
		{"output", "a", "TestLong", "    x_test.go:9: it takes minutes\n"}, {"skip", "a", "TestLong", ""},
		{"output", "a", "", "PASS\n"}, {"output", "a", "", "ok  \ta\t0.1s\n"}, {"pass", "a", "", ""},
		{"output", "b", "", "?   \tb\t[no test files]\n"}, {"skip", "b", "", ""},
		{"output", "c", "TestFail", "=== RUN   TestFail\n"}, {"output", "c", "TestFail", "    c_test.go:1: wrong\n"}, {"fail", "c", "TestFail", ""},
		{"output", "c", "TestHangs", "panic: test timed out\n"}, {"output", "c", "", "FAIL\tc\t0.2s\n"}, {"fail", "c", "", ""},
		{"build-output", "", "", "d.go:1: undefined\n"},
	}), &out)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"ok  \ta\t0.1s\n", "[no test files]\n", "c_test.go:1: wrong\n", "test timed out\n", "FAIL\tc\t0.2s\n", "undefined\n", "not JSON\n",
	} {
		if !strings.Contains(out.String(), text) {
			t.Errorf("nothing says %q", text)
		}
	}
	for _, text := range []string{"PASS", "quiet", "SKIP"} {
		if strings.Contains(out.String(), text) {
			t.Errorf("%q is printed", text)
		}
	}
	const want = `5 tests, 1 failed, 3 skipped: 2 for want of root, 1 as "it takes minutes", 1 for want of mkfs.xfs (package xfsprogs)`
	if got.String() != want {
		t.Errorf("the last line is\n%s\nwant\n%s", got, want)
	}
}

func TestNothingSkippedIsSaid(t *testing.T) {
	if got, want := (&results{tests: 2}).String(), "2 tests, none skipped"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestImportersAreThoseOfTestsToo(t *testing.T) {
	all := []goPackage{
		{ImportPath: "a"}, {ImportPath: "b", Imports: []string{"fmt", "a"}}, {ImportPath: "c", TestImports: []string{"a", module + "/test/need"}},
		{ImportPath: "d", XTestImports: []string{"a"}}, {ImportPath: "e", Imports: []string{"b"}}, {ImportPath: "f", Imports: []string{"a"}},
	}
	importers := importersOf([]string{"a", "f"}, all)
	got := pathsOf(importers, func(goPackage) bool { return true })
	if want := []string{"b", "c", "d"}; !slices.Equal(got, want) {
		t.Errorf("importers of a and f are %q, want %q", got, want)
	}
	if got, want := pathsOf(importers, goPackage.asksTheMachine), []string{"c"}; !slices.Equal(got, want) {
		t.Errorf("%q ask what the machine has, want %q", got, want)
	}
}

func TestWhatEndsAfterTheContextIsNotCounted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got, err := report(ctx, events(t, [][4]string{{"output", "a", "", "FAIL\ta\t0.2s\n"}, {"fail", "a", "", ""}}), io.Discard)
	if err != nil || len(got.passed)+len(got.broken) > 0 {
		t.Errorf("passed are %v, broken %v: %v", got.passed, got.broken, err)
	}
}
