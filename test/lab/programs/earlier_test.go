package programs

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAMissingCommitIsExplained(t *testing.T) {
	const absent = "0123456789abcdef0123456789abcdef01234567"
	err := CheckCommit(t.TempDir(), absent)
	if err == nil || !strings.Contains(err.Error(), absent) || !strings.Contains(err.Error(), "git fetch --unshallow") {
		t.Errorf("got %v", err)
	}
}

func TestAnArchiveStaysInItsDirectory(t *testing.T) {
	archiveOf := func(name string) *bytes.Buffer {
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		for _, h := range []*tar.Header{{Name: "cmd/", Typeflag: tar.TypeDir, Mode: 0o755}, {Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: 2}} {
			if err := w.WriteHeader(h); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Write([]byte("go")); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return &archive
	}
	dir := filepath.Join(t.TempDir(), "checkout")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := untar(archiveOf("cmd/main.go"), dir); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "cmd", "main.go")); err != nil || string(text) != "go" {
		t.Errorf("the file is %q, %v", text, err)
	}
	if err := untar(archiveOf("../outside"), dir); err == nil {
		t.Error("a file outside of it was written")
	}
}
