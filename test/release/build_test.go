package main

import (
	"errors"
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
	s := source{time: time.Unix(1, 0)}
	write := func(out string, dirs ...string) string {
		t.Helper()
		var images []built
		for i, dir := range dirs {
			images = append(images, built{architecture: []string{"amd64", "arm64"}[i], work: dir, recipe: r})
		}
		index, err := s.index(images)
		if err != nil {
			t.Fatal(err)
		}
		digest, err := s.writeImage(index, t.TempDir(), imageName, "1", out)
		if err != nil {
			t.Fatal(err)
		}
		return digest
	}
	out, again := filepath.Join(t.TempDir(), "image.tar"), filepath.Join(t.TempDir(), "image.tar")
	first := write(out, work(t, 0), work(t, 0))
	if second := write(again, work(t, time.Hour), work(t, time.Minute)); first != second || hash(t, out) != hash(t, again) {
		t.Errorf("digests %s and %s", first, second)
	}
	other := work(t, 0)
	if err := os.WriteFile(filepath.Join(other, "out/p"), []byte("changed"), 0o755); err != nil {
		t.Fatal(err)
	}
	if third := write(again, work(t, 0), other); third == first {
		t.Errorf("another program is the same image %s", third)
	}
	index := readImage(t, out, first)
	list, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	// Both architectures have the same two layers here: of each there is one blob.
	blobs, err := filepath.Glob(filepath.Join(untar(t, out), "blobs/sha256/*"))
	if err != nil || len(list.Manifests) != 2 || len(blobs) != 1+2+2+2 {
		t.Fatalf("index %+v, blobs %v, %v", list, blobs, err)
	}
	for i, architecture := range []string{"amd64", "arm64"} {
		image, err := index.Image(list.Manifests[i].Digest)
		if err != nil {
			t.Fatal(err)
		}
		settings, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		layers, err := image.Layers()
		if err != nil || list.Manifests[i].Platform.Architecture != architecture || settings.Architecture != architecture || len(layers) != 2 {
			t.Errorf("for %s: %+v leads to %+v, %v", architecture, list.Manifests[i], settings, err)
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
	for _, pattern := range []string{`exec\.Command\("([a-z0-9_.]+)"`, `\brun\("[^"]*", "([a-z0-9_.]+)"`, `\{"(mkfs\.[a-z0-9]+)"`} {
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

func TestTheListNamesPackagesAndModules(t *testing.T) {
	t.Chdir(root)
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{
		"amd64/rootfs/var/lib/dpkg/status.d/mount": "Package: mount\nVersion: 2.38.1-5+deb12u3\nArchitecture: amd64\n",
		"amd64/out/none": "",
	} {
		err := errors.Join(os.MkdirAll(filepath.Join(dir, filepath.Dir(file)), 0o755), os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644))
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := components(filepath.Join(dir, "none"), imageRoots(dir)); err == nil {
		t.Error("an image without programs has a list")
	}
	made, err := components(self, imageRoots(dir))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"pkg:deb/debian/mount@2.38.1-5%2Bdeb12u3?arch=amd64&distro=bookworm", "pkg:golang/helm.sh/helm/v3@v3.22.0"} {
		if len(made[want].digest) != 1 {
			t.Errorf("%s: got %+v, want a hash", want, made[want])
		}
	}
	s := source{version: "1.2.3"}
	out := filepath.Join(dir, "list.json")
	if err := s.describe(self, out, "APPLICATION", made); err != nil {
		t.Fatal(err)
	}
	first := hash(t, out)
	if err := s.describe(self, out, "APPLICATION", made); err != nil || hash(t, out) != first {
		t.Errorf("two lists of the same differ, or %v", err)
	}
	control := filepath.Join(dir, "amd64/rootfs/var/lib/dpkg/status.d/mount")
	if err := os.WriteFile(control, []byte("Package: mount\nVersion: 1\nArchitecture: amd64\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := components(self, imageRoots(dir)); err == nil || !strings.Contains(err.Error(), "mount_1_amd64.deb") {
		t.Errorf("a package whose hash is not pinned: got %v", err)
	}
}

// Every package of every architecture has the version and a pinned hash.
func TestEveryPackageIsPinned(t *testing.T) {
	list := read(t, "image/packages.sha256")
	for _, line := range strings.Fields(read(t, "image/packages")) {
		name, version, _ := strings.Cut(line, "=")
		file := name + "_" + strings.ReplaceAll(version, ":", "%3a")
		for _, architecture := range []string{"amd64", "arm64"} {
			want := regexp.MustCompile(`(?m)^[0-9a-f]{64}  ` + regexp.QuoteMeta(file) + `_(all|` + architecture + `)\.deb$`)
			if !want.MatchString(list) {
				t.Errorf("image/packages.sha256 has no %s for %s", file, architecture)
			}
		}
	}
}
