package need

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// told is a test that says how it ends.
type told struct {
	testing.TB
	skipped, failed string
}

func (t *told) Helper()                      {}
func (t *told) Skip(args ...any)             { t.skipped = fmt.Sprint(args...) }
func (t *told) Fatalf(f string, args ...any) { t.failed = fmt.Sprintf(f, args...) }

// lacks has Has say what a machine lacks.
func lacks(things ...Thing) *told {
	t := &told{}
	Has(t, things...)
	return t
}

func TestWhatIsMissingIsSaidWithItsPackage(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "sfdisk"), nil, 0o700); err != nil { //nolint:gosec // it is looked for as a program
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	before := Machine()
	t.Setenv("CI", "")
	missing := []Thing{Program("sfdisk"), {"xfs", func() error { return lack{"package xfsprogs", os.ErrNotExist} }},
		{"it all", func() error { return lack{"root", os.ErrPermission} }}}
	want := []Need{{"xfs", "package xfsprogs"}, {"it all", "root"}}
	got := lacks(missing...)
	if needs := Said("    x_test.go:12: " + strings.ReplaceAll(got.skipped, "\n", "\n        ")); !reflect.DeepEqual(needs, want) || got.failed != "" {
		t.Errorf("skipped as %q, which is understood as %v, failed as %q", got.skipped, needs, got.failed)
	}
	t.Setenv("CI", "true")
	if got := lacks(missing...); got.skipped != "" || !strings.Contains(got.failed, "package xfsprogs") || strings.Contains(got.failed, "sfdisk") {
		t.Errorf("in CI: %+v", got)
	}
	if got := lacks(Thing{"a kernel", func() error { return os.ErrInvalid }}); got.failed != "" || !strings.Contains(got.skipped, "needs a kernel (another machine): ") {
		t.Errorf("in CI, what nobody there can have: %+v", got)
	}
	if got := lacks(missing[0]); got.skipped+got.failed != "" {
		t.Errorf("with all it needs: %+v", got)
	}
	if err := os.Remove(filepath.Join(dir, "sfdisk")); err != nil {
		t.Fatal(err)
	}
	if after := Machine(); after == before && os.Geteuid() == 0 {
		t.Errorf("with and without sfdisk the machine is %q", after)
	}
}

func TestRootsPartOfPathIsForEverybody(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := look("losetup")
	if missing := err != nil; missing != (os.Geteuid() == 0) {
		t.Errorf("user %d, losetup in no directory of PATH: %v", os.Geteuid(), err)
	}
}

func TestAShallowCloneIsToldWhatItLacks(t *testing.T) {
	t.Setenv("CI", "true")
	const absent = "0123456789abcdef0123456789abcdef01234567"
	if got := lacks(Commit(absent)); !strings.Contains(got.failed, "needs commit "+absent+" (a full clone): ") ||
		!strings.Contains(got.failed, "git fetch --unshallow") {
		t.Errorf("in CI, without the commit: %+v", got)
	}
}
