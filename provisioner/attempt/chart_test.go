package attempt

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/topodisk/topodisk/test/golden"
)

// TestTheAttemptPageIsCurrent holds the state chart in docs/architecture.md against
// what the transcripts show.
func TestTheAttemptPageIsCurrent(t *testing.T) {
	c := newChart(t)
	made := "\n" + legend + "\nUntil the request is in the journal:\n\n" + c.diagram(false) +
		"\nOnce it may be there, and a volume may exist or be created:\n\n" + c.diagram(true) + "\n" + c.table(t) + "\n"
	golden.Section(t, "../../docs/architecture.md", "The phases of a Record", made)
}

// TestTheAttemptPageNamesExistingTypes holds what people have written in docs/architecture.md about Records against the
// package: each name in code is one of its names, its files or its transcripts, and each transcript has its place.
func TestTheAttemptPageNamesExistingTypes(t *testing.T) {
	page, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## The Record of a claim\n")
	section, _, end := strings.Cut(section, "\n## ")
	if !found || !end {
		t.Fatal("docs/architecture.md has no section of Records")
	}
	known := comments(t)
	for _, file := range sources(t) {
		known[file] = ""
	}
	transcripts := map[string]bool{}
	for _, file := range transcriptFiles(t) {
		transcripts[strings.TrimSuffix(filepath.Base(file), ".txt")] = false
	}
	for _, match := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(section, -1) {
		name := match[1]
		if strings.Contains(name, " ") {
			continue // a command
		}
		_, declared := known[name]
		_, shown := transcripts[name]
		if shown {
			transcripts[name] = true
		}
		if _, err := os.Stat("../../" + name); !declared && !shown && (err != nil || !strings.Contains(name, "/")) {
			t.Errorf("`%s` is no name, file or transcript of the package, and no directory", name)
		}
	}
	for name, named := range transcripts {
		if !named {
			t.Errorf("no row names the transcript %s", name)
		}
	}
}

const legend = `This section is made from the transcripts in ` + "`provisioner/attempt/testdata`" + `. A dashed phase is one with an action in progress whose result is
the next event that matters. The diagrams omit the transitions that are possible in every phase: a claim that is bound, deleted or gone
ends its Record (Ended) once no volume without an owner can exist; a PersistentVolume of the claim that appears ends the attempt (Saved);
and if something that an attempt depends on has changed when it fails, the next attempt begins immediately. The table has all
transitions. ` + "`outcome.go`" + ` defines what an answer means. *Owned* is a volume that a PersistentVolume refers to; *never* means that the API
server refuses the PersistentVolume for good.
`

// chart is all that the transcripts show of each phase.
type chart struct {
	edges map[Phase]map[Phase][]string // what leads from one to another
	drawn map[Phase]map[Phase][]string // but for what the legend says of all
	then  map[Phase][]string           // the actions without a result that events have led to
	open  map[Phase]bool               // the journal may have the request
}

func newChart(t *testing.T) *chart {
	c := &chart{edges: map[Phase]map[Phase][]string{}, drawn: map[Phase]map[Phase][]string{}, then: map[Phase][]string{}, open: map[Phase]bool{}}
	for _, p := range phases() {
		c.edges[p], c.drawn[p] = map[Phase][]string{}, map[Phase][]string{}
	}
	for _, s := range allSteps(t) {
		c.open[s.to] = c.open[s.to] || s.open
		for _, action := range s.actions {
			if name := Name(action); actionPhases[name] == nil {
				c.then[s.from] = with(c.then[s.from], name)
			}
		}
		if s.from == s.to {
			continue
		}
		c.edges[s.from][s.to] = with(c.edges[s.from][s.to], s.cause())
		if !s.isException() {
			c.drawn[s.from][s.to] = with(c.drawn[s.from][s.to], s.cause())
		}
	}
	return c
}

// with returns the sorted words and one more, each once.
func with(words []string, word string) []string {
	i, found := slices.BinarySearch(words, word)
	if found {
		return words
	}
	return slices.Insert(words, i, word)
}

// cause is the kind of the event that has led to another phase, and in a word what a result says.
func (s step) cause() string {
	if s.due {
		return "Tick"
	}
	says := "ok"
	if strings.Contains(s.event.String(), " err=") {
		says = "err"
	}
	switch e := s.event.(type) {
	case Resolved:
		return words(kind(e), when("(refused)", e.Refusal != nil))
	case Answer:
		says = "volume"
		for _, action := range s.actions {
			if count, ok := action.(CountAnswer); ok {
				says = count.Outcome.String()
			}
		}
	case SiblingsChecked:
		says = either(e.Siblings.State == NoneAwaited, "none awaited", siblingStates[e.Siblings.State])
	case NodeChecked:
		says = either(e.Gone, "gone", "there")
	case ClaimChecked:
		says = either(e.Gone, "gone", "there")
	case VolumeChecked:
		says = either(e.Wanting, "wanting", either(e.Err != nil, "err", "not wanting"))
	case VolumeSaved:
		says = either(e.Refused, "refused", says)
	case VolumeDeleted:
		says = either(e.Owner != "", "owned", either(e.Kept != nil, "kept", says))
	case Written:
		says = either(e.Refusal != nil, "refused", says)
	case Protected, SecretsRead, NodeRemoved:
	default:
		return Name(e)
	}
	return words(Name(s.event), says)
}

func either(is bool, one, other string) string {
	if is {
		return one
	}
	return other
}

// isException says whether the legend has the reason for where the step leads to.
func (s step) isException() bool {
	failed := slices.ContainsFunc(s.actions, func(a Action) bool { return Name(a) == "CountFailure" })
	switch s.to {
	case Ended:
		return s.from != Saved && s.from != Deleting
	case Saved:
		return !slices.Contains([]string{"Resolved HasVolume", "VolumeChecked not wanting", "VolumeSaved ok"}, s.cause())
	case Unselecting, Unselected, Waiting, Doubtful, Held, Unsaved:
		return false
	}
	return failed || s.from == Unselecting && s.to == Resolving
}

// phases are all of them, in the order of their numbers.
func phases() (all []Phase) {
	for p := New; int(p) < len(phaseNames); p++ {
		all = append(all, p)
	}
	return all
}

// diagram draws where the phases lead to in which the journal may have the request, or those in which it has not.
func (c *chart) diagram(open bool) string {
	var arrows strings.Builder
	var acting []string
	for _, from := range phases() {
		for _, to := range phases() {
			if c.open[from] != open || len(c.drawn[from][to]) == 0 {
				continue
			}
			fmt.Fprintf(&arrows, "    %v --> %v: %s\n", from, to, labels(c.drawn[from][to]))
			for _, p := range []Phase{from, to} {
				if p.inAction() {
					acting = with(acting, p.String())
				}
			}
		}
	}
	style := "    classDef action stroke-dasharray: 5 4\n    class " + strings.Join(acting, ",") + " action\n"
	return "```mermaid\nstateDiagram-v2\n" + style + arrows.String() + "```\n"
}

// labels joins causes, those with one event's name together.
func labels(causes []string) string {
	var all []string
	for _, cause := range causes {
		name, rest, _ := strings.Cut(cause, " ")
		if i := len(all) - 1; i >= 0 && rest != "" && strings.HasPrefix(all[i], name) {
			all[i] += " or " + rest
			continue
		}
		all = append(all, cause)
	}
	return strings.Join(all, ", ")
}

// table has a row for each phase.
func (c *chart) table(t *testing.T) string {
	var rows strings.Builder
	rows.WriteString("| phase | meaning | left by | what is done |\n|---|---|---|---|\n")
	meanings := meaningsOf(t)
	for _, from := range phases() {
		var left, done []string
		for _, to := range phases() {
			if causes := c.edges[from][to]; len(causes) > 0 {
				left = append(left, labels(causes)+" → "+to.String())
			}
		}
		for action, of := range actionPhases {
			if slices.Contains(of, from) {
				done = append(done, "**"+action+"**")
			}
		}
		if left == nil && from != Ended || meanings[from] == "" {
			t.Errorf("no transcript leaves %v, or no comment says what it means", from)
		}
		fmt.Fprintf(&rows, "| %v | %s | %s | %s |\n", from, meanings[from], strings.Join(left, "<br>"), strings.Join(append(done, c.then[from]...), ", "))
	}
	return rows.String()
}

// meaningsOf returns what the comments of the phases say, or of the actions that are under way in them.
func meaningsOf(t *testing.T) map[Phase]string {
	t.Helper()
	comments := comments(t)
	meanings := map[Phase]string{}
	for action, of := range actionPhases {
		for _, p := range of {
			meanings[p] = meaning(action, comments[action])
		}
	}
	for _, p := range phases() {
		if comment := comments[p.String()]; comment != "" {
			meanings[p] = meaning(p.String(), comment)
		}
	}
	return meanings
}

// comments returns the comments of all that the package declares at its top, by name.
func comments(t *testing.T) map[string]string {
	t.Helper()
	comments := map[string]string{}
	for _, file := range sources(t) {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				comments[d.Name.Name] = d.Doc.Text()
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.ValueSpec:
						for _, name := range spec.Names {
							comments[name.Name] = spec.Doc.Text()
						}
					case *ast.TypeSpec:
						comments[spec.Name.Name] = spec.Doc.Text()
					}
				}
			}
		}
	}
	return comments
}

// sources are the package's files but for the tests.
func sources(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(files, func(file string) bool { return strings.HasSuffix(file, "_test.go") })
}

// meaning returns a comment without the name that it begins with, and of an action's the first sentence without the result.
func meaning(name, comment string) string {
	text := strings.TrimSuffix(strings.Join(strings.Fields(comment), " "), ".")
	says, ok := strings.CutPrefix(text, name+" says that ")
	if ok {
		return strings.Replace(says, ", and that ", ", and ", 1)
	}
	text, _, _ = strings.Cut(strings.TrimPrefix(text, name+" "), ". ")
	text, _, _ = strings.Cut(text, ": ")
	return text
}
