package explain

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/topodisk/topodisk/test/golden"
)

func expectations(t testing.TB) []golden.VerdictCase {
	t.Helper()
	all, err := golden.LoadVerdicts("..")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// factsOf reads the Facts of a case that were written by hand; each call makes them anew.
func factsOf(t testing.TB, name string) *Facts {
	return readFacts(t, filepath.Join("testdata", "facts", name+".yaml"))
}

func readFacts(t testing.TB, path string) *Facts {
	t.Helper()
	var f Facts
	readYAML(t, path, &f)
	return &f
}

// fixturesOf returns the files with the Facts of a case: written by hand in testdata/facts, dumped by a lab in testdata/lab.
func fixturesOf(t testing.TB, name string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join("testdata", "*", name+".yaml"))
	if err != nil || len(found) == 0 {
		t.Fatalf("%s has no fixture: %v", name, err)
	}
	return found
}

// isByHand says whether a fixture was written by hand: the names of its objects are known to tests.
func isByHand(path string) bool { return filepath.Base(filepath.Dir(path)) == "facts" }

// casesByHand returns the cases that have Facts written by hand.
func casesByHand(t testing.TB) []golden.VerdictCase {
	t.Helper()
	return slices.DeleteFunc(expectations(t), func(e golden.VerdictCase) bool { return !slices.ContainsFunc(fixturesOf(t, e.Case), isByHand) })
}

func readYAML(t testing.TB, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func TestVerdicts(t *testing.T) {
	for _, want := range expectations(t) {
		for _, path := range fixturesOf(t, want.Case) {
			t.Run(want.Case+"/"+filepath.Base(filepath.Dir(path)), func(t *testing.T) { checkVerdict(t, want, readFacts(t, path)) })
		}
	}
}

func checkVerdict(t *testing.T, want golden.VerdictCase, f *Facts) {
	got := Why(f)
	if err := want.Check(asPrinted(got)); err != nil {
		t.Error(err)
	}
	checkForm(t, f, got)
	if t.Failed() {
		t.Logf("%s", textOf(got))
	}
}

// asPrinted returns a verdict as the program prints it in JSON.
func asPrinted(v Verdict) golden.Verdict {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	printed, err := golden.ParseVerdict(text)
	if err != nil {
		panic(err)
	}
	return printed
}

// missingEvidence returns what is expected, as in verdicts.yaml, and not there.
func missingEvidence(want []string, got []Evidence) []string {
	return asPrinted(Verdict{Evidence: got}).Lacks(want)
}

// checkForm checks what holds for every verdict.
func checkForm(t *testing.T, f *Facts, v Verdict) {
	t.Helper()
	for _, problem := range formProblems(f, v) {
		t.Error(problem)
	}
}

// formProblems returns what is wrong with a verdict, whatever the facts are.
func formProblems(f *Facts, v Verdict) []string {
	var problems []string
	complain := func(holds bool, problem string) {
		if !holds {
			problems = append(problems, problem+": "+textOf(v))
		}
	}
	complain(v.Subject == f.Subject, "the subject is another")
	complain(strings.HasSuffix(v.Message, ".") && !strings.Contains(v.Message, ".."), "the message is no sentence")
	switch v.State {
	case Waits:
		complain(v.Cause != "" && len(v.Evidence) > 0 && v.Actor != "" && len(v.Next) > 0 && v.Retried != "", "something is empty")
	case Works:
		complain(v.Cause == "" && v.Actor == "", "it works and has a cause")
	case Unknown:
		complain(v.Cause == "", "it is unknown and has a cause")
	default:
		complain(false, "no such state")
	}
	for _, next := range typed(v) {
		complain(strings.HasPrefix(next, "kubectl ") && !strings.Contains(next, "NAME") && !strings.Contains(next, "  "), "a command is incomplete")
	}
	for _, e := range v.Evidence {
		_, there := objectIn(f, e.Object)
		complain(there || e.Value == None, "evidence is not in the facts: "+textOf(e))
	}
	return problems
}

// typed returns a verdict's commands as they are typed.
func typed(v Verdict) (commands []string) {
	for _, c := range v.Next {
		commands = append(commands, c.String())
	}
	return commands
}

func TestMessagesNameTheirObjects(t *testing.T) {
	for _, want := range casesByHand(t) {
		f := factsOf(t, want.Case)
		got, names := Why(f), []string{f.Subject.Name}
		for i := range f.Volumes {
			names = append(names, f.Volumes[i].Name)
		}
		for _, e := range got.Evidence {
			names = append(names, e.Object.Name)
		}
		if !slices.ContainsFunc(names, func(name string) bool { return strings.Contains(got.Message, name) }) {
			t.Errorf("%s: %q names none of %v", want.Case, got.Message, names)
		}
	}
}

func TestWhyIsDeterministic(t *testing.T) {
	for _, want := range casesByHand(t) {
		first := Why(factsOf(t, want.Case))
		for range 5 {
			if diff := cmp.Diff(first, Why(factsOf(t, want.Case))); diff != "" {
				t.Fatalf("%s: %s", want.Case, diff)
			}
		}
	}
}
