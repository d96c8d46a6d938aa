package programs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestEveryVersionHasAModuleThatPinsIt(t *testing.T) {
	root, err := FindRoot()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range Versions {
		text, err := os.ReadFile(filepath.Join(v.module(root), "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		if release, err := v.Release(root); err != nil || !strings.HasPrefix(release, string(v)+".") {
			t.Errorf("the module of %s is of %q (%v)", v, release, err)
		}
		staging := regexp.MustCompile(`(?m)^\tk8s\.io/\S+ => k8s\.io/\S+ v0\.(\d+)`).FindAllSubmatch(text, -1)
		if len(staging) == 0 || slices.ContainsFunc(staging, func(m [][]byte) bool { return "1."+string(m[1]) != string(v) }) {
			t.Errorf("%s/go.mod replaces modules of Kubernetes by another version than %s, or none", v.module(root), v)
		}
	}
	modules, err := filepath.Glob(filepath.Join(root, "test", "kube", "v1.*"))
	if err != nil || len(modules) != len(Versions) {
		t.Errorf("test/kube has the modules %v (%v), want one for each of %v", modules, err, Versions)
	}
}

func TestVersionsAreOrdered(t *testing.T) {
	if newest := Versions[len(Versions)-1]; newest != Default {
		t.Errorf("the default is %s, want the newest, %s", Default, newest)
	}
	if !Version("1.37").AtLeast("1.37") || Version("1.33").AtLeast("1.34") || !Version("1.37").AtLeast("1.33") {
		t.Error("AtLeast does not compare by age")
	}
	if first, last := Versions[0].BuiltNodes("/r"), Default.BuiltNodes("/r"); first.Containerd != "" || last.Containerd == "" || first.Kube == last.Kube {
		t.Errorf("the first version is in %+v, the newest in %+v", first, last)
	}
}

func TestUnknownVersionIsRefusedWithWhatIsAllowed(t *testing.T) {
	v := Default
	for _, text := range []string{"", "1.32", "v1.36", "1.36.3", "1.4"} {
		if err := v.Set(text); err == nil || err.Error() != "allowed are 1.33, 1.34, 1.35, 1.36, 1.37" {
			t.Errorf("Set(%q) says %v", text, err)
		}
	}
	if v != Default {
		t.Errorf("a refused version was set: %s", v)
	}
}
