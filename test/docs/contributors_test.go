package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var (
	stageOf = regexp.MustCompile(`(?m)^ *(?:stage|quiet|beside) ([a-z0-9-]+) make `)
	needOf  = regexp.MustCompile(`(?s)for need in (.*?); do`)
	named   = regexp.MustCompile("(?m)(?:`|^|(?:stage|quiet|beside) [a-z0-9-]+ )make ((?:[a-z][a-z0-9-]* ?)+)(?:[A-Z`\n]|$)")
	packOf  = regexp.MustCompile(`missing\+=\(([a-z0-9-]+)\)`)
)

// CI has a job for every stage of .ci/run, so that none is left out.
func TestCIRunsEveryStage(t *testing.T) {
	var workflow struct {
		Jobs struct {
			Stage struct {
				Strategy struct {
					Matrix struct{ Stage []string }
				}
			}
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, ".github/workflows/ci.yml")), &workflow); err != nil {
		t.Fatal(err)
	}
	var stages []string
	for _, match := range stageOf.FindAllStringSubmatch(read(t, ".ci/run"), -1) {
		stages = append(stages, match[1])
	}
	jobs := workflow.Jobs.Stage.Strategy.Matrix.Stage
	slices.Sort(stages)
	slices.Sort(jobs)
	if len(stages) < 10 || !slices.Equal(stages, jobs) {
		t.Errorf(".ci/run has the stages %q, .github/workflows/ci.yml runs %q", stages, jobs)
	}
}

// The command that CONTRIBUTING.md sets a machine up with installs what .ci/run does.
func TestSetUpInstallsWhatCIDoes(t *testing.T) {
	_, command, _ := strings.Cut(read(t, "CONTRIBUTING.md"), "apt-get install --no-install-recommends ")
	command, _, _ = strings.Cut(command, "\n")
	packages := strings.Fields(command)
	script := read(t, ".ci/run")
	needs := needOf.FindStringSubmatch(script)
	if needs == nil {
		t.Fatal(".ci/run has no list of what it needs")
	}
	var want []string
	for _, need := range strings.Fields(strings.ReplaceAll(needs[1], "\\\n", " ")) {
		_, name, _ := strings.Cut(need, ":")
		want = append(want, name)
	}
	for _, match := range packOf.FindAllStringSubmatch(script, -1) {
		want = append(want, match[1])
	}
	if len(want) < 15 {
		t.Errorf("only %d packages were found in .ci/run", len(want))
	}
	for _, name := range want {
		if name != "make" && name != "git" && !slices.Contains(packages, name) {
			t.Errorf("CONTRIBUTING.md doesn't install %s, which .ci/run does", name)
		}
	}
}

// A stranger reads `make help` on one page of a terminal.
func TestHelpIsShort(t *testing.T) {
	help, err := exec.Command("make", "--no-print-directory", "-C", root, "help").Output()
	if err != nil {
		t.Fatal(err)
	}
	if targets := regexp.MustCompile(`(?m)^  make `).FindAll(help, -1); len(targets) < 20 || len(targets) > 30 {
		t.Errorf("the Makefile has %d targets, want 20 to 30", len(targets))
	}
	for line := range strings.Lines(string(help)) {
		if line = strings.TrimSpace(line); len(line) > 78 { // they begin with two spaces
			t.Errorf("make help has a line of more than 80 characters: %s", line)
		}
	}
}

// What pages and CI tell make to do is a target.
func TestEveryTargetThatIsNamedExists(t *testing.T) {
	var targets []string
	for _, match := range target.FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets = append(targets, match[1])
	}
	texts := pages(t)
	for _, file := range []string{".ci/run", ".github/workflows/ci.yml", ".github/workflows/nightly.yml"} {
		texts[file] = read(t, file)
	}
	seen := 0
	for file, text := range texts {
		for _, named := range named.FindAllStringSubmatch(text, -1) {
			for name := range strings.FieldsSeq(named[1]) {
				seen++
				if !slices.Contains(targets, name) {
					t.Errorf("%s names make %s, which is no target", file, name)
				}
			}
		}
	}
	if seen < 50 {
		t.Errorf("only %d targets are named", seen)
	}
}

// read returns a file of the repository.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
