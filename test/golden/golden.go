// Package golden is for tests that hold a file against the code that it is made
// from.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the files that are made from the code instead of comparing them")

// Page holds a page of the documentation, named from the package's directory,
// against what the code makes of it. With -update it writes the page.
func Page(t testing.TB, page, made string) {
	t.Helper()
	compare(t, page, made, "make docs-update")
}

// Transcripts holds each transcript in testdata, as a test of its own, against what a
// replay of it gives now. With -update it writes the transcripts.
func Transcripts(t *testing.T, replay func(t *testing.T, file, text string) string) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, file, replay(t, file, string(text)), "-update")
		})
	}
}

func compare(t testing.TB, file, made, mends string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(made), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	current, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(current), made); diff != "" {
		t.Errorf("%s is stale; %s mends it (-in the file, +as the code has it):\n%s", strings.ReplaceAll(file, "../", ""), mends, diff)
	}
}
