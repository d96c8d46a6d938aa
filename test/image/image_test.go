package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

const root = "../.."

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheDockerfileIsTheRecipe(t *testing.T) {
	r, err := parse(read(t, "Dockerfile"), map[string]string{"TARGETOS": "linux", "TARGETARCH": "arm64", "VERSION": "1.2.3", "REVISION": "abc"})
	if err != nil {
		t.Fatal(err)
	}
	if build := r.goBuild("/made"); !strings.Contains(build, "GOOS=linux GOARCH=arm64") || !strings.Contains(build, "main.version=1.2.3") || !strings.Contains(build, "-o /made/out/ ./cmd/disk-driver ./cmd/disk-provisioner") {
		t.Errorf("build is %q", build)
	}
	if line := r.rootfs("/made", "/kept"); !strings.HasSuffix(line, "/image/rootfs.sh /made/rootfs arm64 /kept") {
		t.Errorf("root file system is made by %q", line)
	}
	if r.labels["org.opencontainers.image.version"] != "1.2.3" || r.labels["org.opencontainers.image.revision"] != "abc" {
		t.Errorf("labels %v", r.labels)
	}
	if r.user != "65532:65532" || !slices.Equal(r.command, []string{"/disk-driver"}) || len(r.copies) != 3 {
		t.Errorf("user %s, command %v, copies %v", r.user, r.command, r.copies)
	}
}

func TestALineThatIsNotKnownIsRefused(t *testing.T) {
	for _, line := range []string{"ADD x /x", "WORKDIR /x", "COPY --from=build /a /b /c"} {
		if _, err := parse(read(t, "Dockerfile")+line+"\n", nil); err == nil || !strings.Contains(err.Error(), line) {
			t.Errorf("%s: got %v", line, err)
		}
	}
	if _, err := parse("FROM scratch\n", nil); err == nil {
		t.Error("an empty Dockerfile is a recipe")
	}
}

// work makes what a recipe's lines leave behind, with times that differ each time.
func work(t *testing.T, ago time.Duration) string {
	t.Helper()
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"rootfs/usr/sbin/b": 0o700, "rootfs/usr/sbin/a": 0o755, "rootfs/etc/c": 0o600, "out/p": 0o755} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(name), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, time.Now(), time.Now().Add(-ago)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("usr/sbin", filepath.Join(dir, "rootfs/sbin")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestTheSameFilesAreTheSameImage(t *testing.T) {
	r := &recipe{labels: map[string]string{"a": "b"}, user: "65532:65532", command: []string{"/p"}, copies: []copied{{"/rootfs/", "/"}, {"/out/p", "/p"}}}
	images := func(dirs ...string) (all []built) {
		for i, dir := range dirs {
			all = append(all, built{architecture: []string{"amd64", "arm64"}[i], work: dir, recipe: r})
		}
		return all
	}
	out := filepath.Join(t.TempDir(), "image.tar")
	first, err := write(images(work(t, 0), work(t, 0)), "example.com/a:1", out)
	if err != nil {
		t.Fatal(err)
	}
	second, err := write(images(work(t, time.Hour), work(t, time.Minute)), "example.com/a:1", filepath.Join(t.TempDir(), "image.tar"))
	if err != nil || first != second {
		t.Errorf("digests %s and %s, %v", first, second, err)
	}
	other := work(t, 0)
	if err := os.WriteFile(filepath.Join(other, "out/p"), []byte("changed"), 0o755); err != nil {
		t.Fatal(err)
	}
	if third, err := write(images(work(t, 0), other), "example.com/a:1", filepath.Join(t.TempDir(), "image.tar")); err != nil || third == first {
		t.Errorf("another program is the same image %s, %v", third, err)
	}
	files := untar(t, out)
	blob := func(digest string) []byte { return files["blobs/"+strings.Replace(digest, ":", "/", 1)] }
	var top, list index
	if err := errors.Join(json.Unmarshal(files["index.json"], &top), json.Unmarshal(blob(first), &list)); err != nil {
		t.Fatal(err)
	}
	// Both architectures have the same two layers here: of each there is one blob.
	if len(top.Manifests) != 1 || top.Manifests[0].Digest != first || files["oci-layout"] == nil || len(list.Manifests) != 2 || len(files) != 2+1+2+2+2 {
		t.Fatalf("index %+v leads to %+v, files %v", top, list, slices.Collect(maps.Keys(files)))
	}
	for i, architecture := range []string{"amd64", "arm64"} {
		var image manifest
		var settings config
		entry := list.Manifests[i]
		if err := errors.Join(json.Unmarshal(blob(entry.Digest), &image), json.Unmarshal(blob(image.Config.Digest), &settings)); err != nil {
			t.Fatal(err)
		}
		if entry.Platform.Architecture != architecture || settings.Architecture != architecture || len(image.Layers) != 2 || len(blob(image.Layers[1].Digest)) == 0 {
			t.Errorf("for %s: %+v leads to %+v and %+v", architecture, entry, image, settings)
		}
	}
}

// untar returns the files of an archive.
func untar(t *testing.T, name string) map[string][]byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for archive := tar.NewReader(bytes.NewReader(text)); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWhatCannotRunIsNoImage(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	shell, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	for _, c := range []struct{ architecture, program, want string }{
		{other, self, "want EM_"},
		{runtime.GOARCH, shell, "the image lacks"},
		{"riscv64", self, "allowed are amd64 and arm64"},
	} {
		b := built{architecture: c.architecture, work: t.TempDir()}
		if err := os.Mkdir(filepath.Join(b.work, "out"), 0o755); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(c.program)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(b.work, "out", "program"), content, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := b.runs(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s for %s: got %v, want %q", c.program, c.architecture, err, c.want)
		}
	}
}

// The node plugin would fail at the first disk if the image lacked a program that it runs.
func TestTheImageHasEveryProgramThatTheNodePluginRuns(t *testing.T) {
	programs := strings.Fields(read(t, "image/programs"))
	runs := []string{"mount", "umount", "xfs_growfs"} // by k8s.io/mount-utils
	for _, pattern := range []string{`exec\.CommandContext\([^,]+(?:\([^)]*\))?, "([a-z0-9_.]+)"`, `\{"(mkfs\.[a-z0-9]+)"`} {
		files, err := filepath.Glob(filepath.Join(root, "diskdriver/node/*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
				runs = append(runs, match[1])
			}
		}
	}
	if len(runs) < 10 {
		t.Fatalf("only these programs were found: %v", runs)
	}
	for _, name := range runs {
		if !slices.ContainsFunc(programs, func(p string) bool { return filepath.Base(p) == name }) {
			t.Errorf("image/programs lacks %s, which the node plugin runs", name)
		}
	}
}

func TestPackagesAreOfOneVersionEach(t *testing.T) {
	for _, line := range strings.Fields(read(t, "image/packages")) {
		if !regexp.MustCompile(`^[a-z0-9.+-]+=[0-9A-Za-z.+~:-]+$`).MatchString(line) {
			t.Errorf("image/packages: %q is no package=version", line)
		}
	}
}

func TestTheBillNamesDebianPackagesAndGoModules(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "amd64", "out"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(dir, "amd64", "out", "program")); err != nil {
		t.Fatal(err)
	}
	packages := filepath.Join(dir, "packages")
	if err := os.WriteFile(packages, []byte("e2fsprogs=1.47.0-2+b2\nlibdevmapper1.02.1=2:1.02.185-2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	list, err := bill("1.2.3", "sha256:00", packages, dir)
	if err != nil {
		t.Fatal(err)
	}
	again, err := bill("1.2.3", "sha256:00", packages, dir)
	if err != nil || string(again) != string(list) {
		t.Errorf("two lists of the same differ, or %v", err)
	}
	var read struct {
		Packages      []sbomPackage
		Relationships []sbomRelation
	}
	if err := json.Unmarshal(list, &read); err != nil {
		t.Fatal(err)
	}
	if len(read.Relationships) != len(read.Packages) {
		t.Errorf("%d packages and %d relations", len(read.Packages), len(read.Relationships))
	}
	for _, want := range []string{"pkg:deb/debian/e2fsprogs@", "pkg:deb/debian/libdevmapper1.02.1@2%3A", "pkg:golang/stdlib@1."} {
		if !strings.Contains(string(list), want) {
			t.Errorf("the list lacks %s", want)
		}
	}
	if _, err := bill("1.2.3", "sha256:00", packages, t.TempDir()); err == nil {
		t.Error("an image without programs has a list")
	}
}
