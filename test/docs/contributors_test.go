package docs_test

import (
	"os"
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

// read returns a file of the repository.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
