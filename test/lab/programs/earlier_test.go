package programs

import (
	"errors"
	"os"
	"os/exec"
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

func TestACommitIsCheckedOutBesideTheClone(t *testing.T) {
	root, into := t.TempDir(), t.TempDir()
	git := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("git", append([]string{"-C", root, "-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	file := filepath.Join("cmd", "main.go")
	git("init", "--quiet")
	for _, text := range []string{"old", "new"} {
		if err := errors.Join(os.MkdirAll(filepath.Join(root, "cmd"), 0o755), os.WriteFile(filepath.Join(root, file), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
		git("add", ".")
		git("commit", "--quiet", "--message="+text)
	}
	if err := extract(t.Context(), root, git("rev-parse", "HEAD~1"), into); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(filepath.Join(into, file)); err != nil || string(text) != "old" {
		t.Errorf("the file is %q, %v", text, err)
	}
	if left, err := os.ReadDir(into); err != nil || len(left) != 1 || git("status", "--porcelain") != "" {
		t.Errorf("left are %v, %v, and the clone says %q", left, err, git("status", "--porcelain"))
	}
}
