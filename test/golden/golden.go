// Package golden is for tests that hold a file against the code that it is made
// from.
package golden

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the files that are made from the code instead of comparing them")

// Update says whether the files are to be written, not compared.
func Update() bool { return *update }

// Page holds a page of the documentation, named from the package's directory,
// against what the code makes of it. With -update it writes the page.
func Page(t testing.TB, page, made string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(page, []byte(made), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	current, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(current), made); diff != "" {
		t.Errorf("%s is stale; make docs-update mends it (-in the file, +as the code has it):\n%s", strings.ReplaceAll(page, "../", ""), diff)
	}
}
