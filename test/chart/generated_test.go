package chart

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chartutil"
)

// repo is the root of the repository, seen from this package's directory.
const repo = "../.."

var update = flag.Bool("update", false, "write the files that are made from the chart instead of comparing them")

func TestGeneratedFilesAreCurrent(t *testing.T) {
	for _, file := range AllGenerated() {
		want, err := file.Make(repo)
		if err != nil {
			t.Fatalf("%s: %v", file.Path, err)
		}
		compareOrUpdate(t, filepath.Join(repo, file.Path), want)
	}
}

// compareOrUpdate fails if the file has another text, or writes it with -update.
func compareOrUpdate(t *testing.T, file, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	current, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(current), want); diff != "" {
		t.Errorf("%s is stale; make chart-update mends it (-in the file, +as the chart makes it):\n%s", file, diff)
	}
}

func TestEveryPresetRendersAsReviewed(t *testing.T) {
	presets, err := Presets(repo)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range presets {
		t.Run(name, func(t *testing.T) {
			compareOrUpdate(t, filepath.Join("testdata", "rendered", name+".yaml"), render(t, values))
		})
	}
}

// render returns the manifests of a release named topodisk in namespace kube-system.
func render(t *testing.T, values map[string]any) string {
	t.Helper()
	manifests, _, err := Render(repo, values, Release{Name: "topodisk", Namespace: "kube-system"})
	if err != nil {
		t.Fatal(err)
	}
	return manifests
}

// preset returns fresh values of a preset with more values over them.
func preset(t *testing.T, name, over string) map[string]any {
	t.Helper()
	presets, err := Presets(repo)
	if err != nil {
		t.Fatal(err)
	}
	values, ok := presets[name]
	if !ok {
		t.Fatalf("no preset %q", name)
	}
	more, err := chartutil.ReadValues([]byte(over))
	if err != nil {
		t.Fatal(err)
	}
	return chartutil.CoalesceTables(more, values)
}
