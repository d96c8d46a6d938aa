package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/topodisk/topodisk/test/golden"
)

// TestThePackagesPageIsCurrent holds the table of packages in docs/architecture.md against the packages: what each says
// that it is for, and which others of the project it imports.
func TestThePackagesPageIsCurrent(t *testing.T) {
	packages, err := list()
	if err != nil {
		t.Fatal(err)
	}
	made := "\n| package | its one job | imports |\n|---|---|---|\n"
	for _, p := range packages {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		if within(name, "test") || within(name, "deploy") {
			continue
		}
		job, ok := jobOf(p.Doc)
		if !ok {
			t.Errorf("the comment of package %s doesn't begin with what it is for: %q", name, p.Doc)
		}
		var imports []string
		for _, imported := range slices.Sorted(slices.Values(p.Imports)) {
			if other, ours := strings.CutPrefix(imported, module+"/"); ours {
				imports = append(imports, "`"+other+"`")
			}
		}
		made += fmt.Sprintf("| `%s` | %s | %s |\n", name, job, strings.Join(imports, " "))
	}
	golden.Section(t, "../../docs/architecture.md", "Each package and its one job", made+"\n")
}

// jobOf is what the first sentence of a package's comment says of it, after its name.
func jobOf(doc string) (string, bool) {
	words := strings.SplitN(strings.TrimSuffix(doc, "."), " ", 3)
	if len(words) < 3 || words[0] != "Package" && words[0] != "Command" {
		return "", false
	}
	return words[2], true
}
