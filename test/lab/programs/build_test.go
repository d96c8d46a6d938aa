package programs

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestProgramsHaveTheirUsualNames(t *testing.T) {
	want := []string{"etcd", "kwok", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"}
	for i, pkg := range slices.Concat(etcdPackages, kubePackages) {
		if got := programName(pkg); got != want[i] {
			t.Errorf("program of %s is %s, want %s", pkg, got, want[i])
		}
	}
}

// The go command compiles a package once for all modules that require the same versions of it and of all that it imports.
func TestModulesOfTheDemoRequireTheSameVersions(t *testing.T) {
	root, err := FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	type version struct{ module, of string }
	seen := map[string]version{}
	for _, dir := range []string{root, Default.module(root), filepath.Join(root, "test", "kube", "etcd")} {
		var said []byte
		noted := func(line string) { said = append(said, line...) }
		if err := (goBuild{dir: dir}).goTool(t.Context(), []string{"mod", "edit", "-json"}, noted, noted); err != nil {
			t.Fatal(err)
		}
		var file struct {
			Require []struct{ Path, Version string }
		}
		if err := json.Unmarshal(said, &file); err != nil {
			t.Fatal(err)
		}
		for _, required := range file.Require {
			now, before := version{dir, required.Version}, seen[required.Path]
			switch {
			case now.of == "v0.0.0": // which is replaced
			case before.of == "":
				seen[required.Path] = now
			case before.of != now.of:
				t.Errorf("%s requires %s %s, and %s requires %s; run `go get %[2]s@VERSION && go mod tidy` there", dir, required.Path, now.of, before.module, before.of)
			}
		}
	}
}

func TestVersionFlagsStampBothPackagesThatAreAskedForIt(t *testing.T) {
	got := versionFlags("v1.36.3")
	for _, want := range []string{
		"-X k8s.io/component-base/version.gitVersion=v1.36.3", "-X k8s.io/client-go/pkg/version.gitVersion=v1.36.3",
		"-X k8s.io/component-base/version.gitMajor=1 ", "-X k8s.io/component-base/version.gitMinor=36 ",
	} {
		if !strings.Contains(got+" ", want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
}

func TestFailedBuildSaysWhatToDo(t *testing.T) {
	for _, c := range []struct{ said, want string }{
		{"link: write /x/y: no space left on device", "the disk is full"},
		{`k8s.io/api@v0.36.3: Get "https://proxy.example/k8s.io/api": dial tcp: lookup proxy.example: no such host`, "the module proxy"},
		{"go build k8s.io/api/core/v1: compile: signal: killed", "memory"},
		{"./a.go:1:2: undefined: x", "undefined: x"},
	} {
		err := explainBuild("build", errors.New("exit status 1"), []string{"fmt", "go: downloading a.example/b v1.0.0", c.said})
		if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.said) {
			t.Errorf("after %q the error is %q, want %q in it", c.said, err, c.want)
		}
		if strings.Contains(err.Error(), "downloading") || strings.Contains(err.Error(), "| fmt") {
			t.Errorf("error %q shows progress", err)
		}
	}
}

func TestStampChangesWithEveryInput(t *testing.T) {
	packages := []string{"a", "b"}
	seen := map[stamp]string{makeStamp("go1.26.8 linux/amd64", packages, []byte("mod"), []byte("sum")): "first"}
	for name, s := range map[string]stamp{
		"Go":              makeStamp("go1.26.9 linux/amd64", packages, []byte("mod"), []byte("sum")),
		"packages":        makeStamp("go1.26.8 linux/amd64", packages[:1], []byte("mod"), []byte("sum")),
		"go.mod":          makeStamp("go1.26.8 linux/amd64", packages, []byte("mod2"), []byte("sum")),
		"go.sum":          makeStamp("go1.26.8 linux/amd64", packages, []byte("mod"), []byte("sum2")),
		"where mod stops": makeStamp("go1.26.8 linux/amd64", packages, []byte("mods"), []byte("um")),
	} {
		if other, dup := seen[s]; dup {
			t.Errorf("another %s has the same stamp as %s", name, other)
		}
		seen[s] = name
	}
}

func TestStampMatchesOnlyACompleteBuild(t *testing.T) {
	dir := t.TempDir()
	s := makeStamp("go", kubePackages, nil, nil)
	for _, pkg := range kubePackages {
		if err := os.WriteFile(filepath.Join(dir, programName(pkg)), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if s.matches(dir, kubePackages) {
		t.Error("programs without a stamp match")
	}
	if err := s.write(dir); err != nil {
		t.Fatal(err)
	}
	if !s.matches(dir, kubePackages) {
		t.Error("a complete build does not match its stamp")
	}
	if other := makeStamp("go2", kubePackages, nil, nil); other.matches(dir, kubePackages) {
		t.Error("a build of another Go matches")
	}
	if err := os.Remove(filepath.Join(dir, "kubectl")); err != nil {
		t.Fatal(err)
	}
	if s.matches(dir, kubePackages) {
		t.Error("a build without kubectl matches")
	}
	if err := s.clear(dir); err != nil || s.clear(dir) != nil {
		t.Errorf("clear: %v, and again: %v", err, s.clear(dir))
	}
}

// told hands over what is written to it.
type told chan string

func (t told) Write(text []byte) (int, error) {
	t <- string(text)
	return len(text), nil
}

func TestBuildsOfOneDirectoryTakeTurns(t *testing.T) {
	dir := t.TempDir()
	lock := func(name string, out io.Writer) func() {
		unlock, err := lockBuild(filepath.Join(dir, name), out)
		if err != nil {
			t.Error(err)
		}
		return unlock
	}
	first := lock("run", io.Discard)
	lock("race", io.Discard)()
	out, done := make(told), make(chan func())
	go func() { done <- lock("run", out) }()
	if said, want := <-out, "waiting for another build of "+filepath.Join(dir, "run")+"\n"; said != want {
		t.Errorf("it says %q, want %q", said, want)
	}
	first()
	(<-done)()
}
