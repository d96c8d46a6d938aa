package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"aead.dev/minisign"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	provenance "github.com/in-toto/attestation/go/predicates/provenance/v1"
	statement "github.com/in-toto/attestation/go/v1"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdxlib"
	"google.golang.org/protobuf/encoding/protojson"
	"helm.sh/helm/v3/pkg/chart/loader"
)

var architectures = flag.String("architectures", runtime.GOARCH, "architectures that the releases are for")

// The version of the releases that the tests make is that of the block of commands that docs/release.md has for it.
const version = "0.2.0"

// blocks are the blocks of commands of docs/release.md that were run.
var blocks = map[string]bool{}

// commands returns the block of docs/release.md that has a text in it.
func commands(t *testing.T, with string) string {
	t.Helper()
	for _, block := range marked(t) {
		if strings.Contains(block, with) {
			blocks[block] = true
			return block
		}
	}
	t.Fatalf("docs/release.md has no block of commands with %s that make test-release runs", with)
	return ""
}

// marked returns the blocks of docs/release.md that say that these tests run them.
func marked(t *testing.T) (all []string) {
	t.Helper()
	form := regexp.MustCompile("(?s)<!-- run by make test-release -->\n```sh\n(.*?)```")
	for _, block := range form.FindAllStringSubmatch(read(t, "docs/release.md"), -1) {
		all = append(all, block[1])
	}
	return all
}

// checkout copies the current tree, with what is not committed, to a repository where everything is.
func checkout(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "checkout")
	list, err := exec.Command("git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range strings.Split(strings.TrimSuffix(string(list), "\x00"), "\x00") {
		if _, err := os.Stat(filepath.Join(root, file)); errors.Is(err, os.ErrNotExist) {
			continue // removed, and not committed
		}
		if err := copyFile(filepath.Join(root, file), filepath.Join(dir, file)); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := filepath.Abs(filepath.Join(root, ".build", "packages"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(kept, 0o755), os.Mkdir(filepath.Join(dir, ".build"), 0o755),
		os.Symlink(kept, filepath.Join(dir, ".build", "packages"))); err != nil {
		t.Fatal(err)
	}
	shell(t, dir, `git init -q && git add -A && git -c user.name=test -c user.email=test@example.com commit -q -m test`,
		"GIT_AUTHOR_DATE=2026-01-02T03:04:05Z", "GIT_COMMITTER_DATE=2026-01-02T03:04:05Z")
	return dir
}

// shell runs commands, and returns what they say on both outputs.
func shell(t *testing.T, dir, line string, env ...string) string {
	t.Helper()
	said, err := try(dir, line, env...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, said)
	}
	return said
}

func try(dir, line string, env ...string) (string, error) {
	command := exec.Command("sh", "-ec", line)
	command.Dir = dir
	for _, setting := range os.Environ() {
		name, _, _ := strings.Cut(setting, "=")
		if !slices.Contains([]string{
			"MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL", "VERSION", "KEY", "KEY_PASSWORD_FILE", "REVISION",
		}, name) {
			command.Env = append(command.Env, setting)
		}
	}
	command.Env = append(append(command.Env, "ARCHITECTURES="+*architectures), env...)
	said, err := command.CombinedOutput()
	return string(said), err
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// A test's key is made by the test that uses it, and signs nothing that anybody gets.
type testKey struct {
	home, password string
	public         minisign.PublicKey
}

// newTestKey makes a home with a test's key and its password where docs/release.md looks for them.
func newTestKey(t *testing.T) testKey {
	t.Helper()
	public, secret, err := minisign.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	k := testKey{home: t.TempDir(), password: "the password of a test's key", public: public}
	text, err := minisign.EncryptKey(k.password, secret)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(k.home, ".minisign")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "topodisk.key"), text, 0o600),
		os.WriteFile(filepath.Join(dir, "topodisk.password"), []byte(k.password+"\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	return k
}

// env makes the key's home the one of a command, which keeps Go's caches.
func (k testKey) env(t *testing.T) []string {
	t.Helper()
	env := []string{"HOME=" + k.home}
	for _, name := range []string{"GOPATH", "GOCACHE", "GOMODCACHE", "GOENV"} {
		value, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		env = append(env, name+"="+strings.TrimSpace(string(value)))
	}
	return env
}

// Everything that a release promises is held against two that are made as docs/release.md says, in different places and under
// different settings: one signed, one not.
func TestRelease(t *testing.T) {
	key, first, second := newTestKey(t), checkout(t), checkout(t)
	began := time.Now()
	said := shell(t, first, commands(t, "KEY="), key.env(t)...)
	t.Logf("make release for %s: %v", *architectures, time.Since(began).Round(time.Second))
	if !strings.Contains(lastLine(said), key.public.String()) || strings.Contains(said, key.password) {
		t.Errorf("with a key make release ends with %q; the key is %s", lastLine(said), key.public)
	}
	said = shell(t, second, "umask 077 && make release VERSION="+version,
		"TZ=Asia/Shanghai", "GOAMD64=v3", "GOARM64=v8.2", "GOFLAGS=-buildvcs=true", "LC_ALL=C.UTF-8")
	if !strings.Contains(lastLine(said), "NOT SIGNED") {
		t.Errorf("without a key make release ends with %q", lastLine(said))
	}
	dist := filepath.Join(first, "dist")
	t.Run("files", func(t *testing.T) { checkFiles(t, dist, true) })
	t.Run("files of the unsigned one", func(t *testing.T) { checkFiles(t, filepath.Join(second, "dist"), false) })
	t.Run("the same bytes", func(t *testing.T) { checkSame(t, dist, filepath.Join(second, "dist")) })
	t.Run("image", func(t *testing.T) {
		checkImageOf(t, filepath.Join(dist, artefacts()[0]), []string{"disk-driver", "disk-provisioner"}, strings.Fields(read(t, "image/packages")))
	})
	t.Run("image of the simulator", func(t *testing.T) {
		checkImageOf(t, filepath.Join(dist, artefacts()[1]), []string{"ecs-simulator"}, nil)
	})
	t.Run("chart", func(t *testing.T) { checkChart(t, dist) })
	t.Run("manifests", func(t *testing.T) { checkManifests(t, dist, version) })
	t.Run("archives", func(t *testing.T) { checkArchives(t, dist) })
	t.Run("provenance", func(t *testing.T) { checkProvenance(t, first) })
	t.Run("tag", func(t *testing.T) { checkTag(t, first) })
	t.Run("verification", func(t *testing.T) { checkVerification(t, dist, key) })
	t.Run("wrong inputs", func(t *testing.T) { checkWrongInputs(t, first, key) })
	for _, block := range marked(t) {
		if !blocks[block] {
			t.Errorf("docs/release.md says that these tests run what they don't:\n%s", block)
		}
	}
}

// artefacts are the files that programs are in, the two images first.
func artefacts() (all []string) {
	all = append(all, "topodisk-"+version+".oci.tar", "ecs-simulator-"+version+".oci.tar")
	for _, program := range []string{"kubectl-topodisk", "ecs-simulator"} {
		for _, architecture := range strings.Split(*architectures, ",") {
			for _, system := range []string{"darwin", "linux"} {
				all = append(all, fmt.Sprintf("%s_v%s_%s_%s.tar.gz", program, version, system, architecture))
			}
		}
	}
	return all
}

func checkFiles(t *testing.T, dist string, signed bool) {
	want := []string{sums, "topodisk-" + version + ".notes.md", "topodisk-" + version + ".provenance.json", "topodisk-" + version + ".tgz", "topodisk.yaml"}
	for _, artefact := range artefacts() {
		want = append(want, artefact, artefact+".spdx.json")
	}
	if signed {
		want = append(want, sums+".minisig", "topodisk-"+version+".provenance.json.minisig")
	}
	slices.Sort(want)
	if got := names(t, dist); !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	files, err := hashFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		all = append(all, file.name)
	}
	return all
}

func checkSame(t *testing.T, a, b string) {
	for _, name := range names(t, b) {
		if !strings.HasSuffix(name, ".provenance.json") && hash(t, filepath.Join(a, name)) != hash(t, filepath.Join(b, name)) {
			t.Errorf("two releases of the same have different %s", name)
		}
	}
}

func hash(t *testing.T, file string) string {
	t.Helper()
	sum, err := hashFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// readImage reads an OCI archive, and holds every blob against its digest and size.
func readImage(t *testing.T, archive, digest string) v1.ImageIndex {
	t.Helper()
	top, err := layout.ImageIndexFromPath(untar(t, archive))
	if err != nil {
		t.Fatal(err)
	}
	list, err := top.IndexManifest()
	if err != nil || len(list.Manifests) != 1 || digest != "" && list.Manifests[0].Digest.String() != digest {
		t.Fatalf("index.json: %+v, %v; want %s alone", list, err, digest)
	}
	index, err := top.ImageIndex(list.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Errorf("%s: %v", archive, err)
	}
	return index
}

// checkImageOf holds an image against the programs and the Debian packages that it is to have.
func checkImageOf(t *testing.T, archive string, programs, packages []string) {
	index := readImage(t, archive, "")
	list, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms, want []string
	listed := purls(t, archive)
	for _, entry := range list.Manifests {
		platforms = append(platforms, entry.Platform.String())
		image, err := index.Image(entry.Digest)
		if err != nil {
			t.Fatal(err)
		}
		settings, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if c := settings.Config; c.User != "65532:65532" || c.Labels["org.opencontainers.image.version"] != version ||
			settings.Architecture != entry.Platform.Architecture {
			t.Errorf("%s: settings %+v", entry.Platform, settings)
		}
		dir := unpack(t, mutate.Extract(image))
		for _, program := range programs {
			checkModules(t, filepath.Join(dir, program), listed)
		}
		controls, err := filepath.Glob(filepath.Join(dir, "var/lib/dpkg/status.d/*"))
		if err != nil || len(controls) != len(packages) {
			t.Errorf("%s: %d packages in the image, want %d; %v", entry.Platform, len(controls), len(packages), err)
		}
		for _, control := range controls {
			if !slices.ContainsFunc(slices.Collect(maps.Keys(listed)), func(purl string) bool {
				return strings.HasPrefix(purl, "pkg:deb/debian/"+filepath.Base(control)+"@") &&
					(strings.Contains(purl, "arch="+entry.Platform.Architecture+"&") || strings.Contains(purl, "arch=all&"))
			}) {
				t.Errorf("the list of %s lacks Debian's %s for %s", archive, filepath.Base(control), entry.Platform)
			}
		}
	}
	for _, architecture := range strings.Split(*architectures, ",") {
		want = append(want, "linux/"+architecture)
	}
	if !slices.Equal(platforms, want) {
		t.Errorf("platforms %q, want %q", platforms, want)
	}
}

// purls reads the list of an artefact with the library's own checks, and returns the packages in it.
func purls(t *testing.T, artefact string) map[string]bool {
	t.Helper()
	file, err := os.Open(artefact + ".spdx.json")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	document, err := spdxjson.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := spdxlib.ValidateDocument(document); err != nil {
		t.Error(err)
	}
	if of := document.Packages[0].PackageChecksums; len(of) != 1 || of[0].Value != hash(t, artefact) {
		t.Errorf("the list of %s is of %+v", artefact, of)
	}
	all := map[string]bool{}
	for _, p := range document.Packages[1:] {
		all[p.PackageExternalReferences[0].Locator] = true
	}
	if len(document.Relationships) != len(document.Packages) {
		t.Errorf("%s: %d packages and %d relations", artefact, len(document.Packages), len(document.Relationships))
	}
	return all
}

// checkModules holds a list against what `go version -m` prints.
func checkModules(t *testing.T, program string, listed map[string]bool) {
	t.Helper()
	text, err := exec.Command("go", "version", "-m", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		var want string
		switch words[0] {
		case "mod":
			want = "pkg:golang/" + words[1]
		case "dep":
			want = "pkg:golang/" + words[1] + "@" + strings.ReplaceAll(words[2], "+", "%2B")
		default:
			continue
		}
		if count++; !listed[want] {
			t.Errorf("the list lacks %s, which %s is built from", want, filepath.Base(program))
		}
	}
	if count < 20 {
		t.Errorf("%s is built from %d modules", program, count)
	}
}

func checkChart(t *testing.T, dist string) {
	chart, err := loader.LoadFile(filepath.Join(dist, "topodisk-"+version+".tgz"))
	if err != nil {
		t.Fatal(err)
	}
	if err := chart.Validate(); err != nil || chart.Metadata.Version != version || chart.Metadata.AppVersion != version {
		t.Errorf("chart %+v, %v", chart.Metadata, err)
	}
	sources, err := loader.LoadDir(filepath.Join(root, "charts", "topodisk"))
	if err != nil || len(chart.Raw) != len(sources.Raw) {
		t.Fatalf("the package has %d files, the chart %d; %v", len(chart.Raw), len(sources.Raw), err)
	}
	for _, file := range chart.Raw {
		if file.Name != "Chart.yaml" && string(file.Data) != read(t, "charts/topodisk/"+file.Name) {
			t.Errorf("the package's %s is not the chart's", file.Name)
		}
	}
}

func checkManifests(t *testing.T, dist, version string) {
	text, err := os.ReadFile(filepath.Join(dist, "topodisk.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	got, want := strings.Split(string(text), "\n"), strings.Split(read(t, manifests), "\n")
	if len(got) != len(want) {
		t.Fatalf("%d lines, want %d", len(got), len(want))
	}
	images := 0
	for n, line := range want {
		switch word := strings.TrimSpace(line); {
		case strings.HasPrefix(word, "image: "+imageName+":"):
			images++
			line = strings.Split(line, imageName)[0] + imageName + ":" + version
		case strings.HasPrefix(word, "app.kubernetes.io/version:"):
			line = strings.Split(line, ":")[0] + `: "` + version + `"`
		}
		if got[n] != line {
			t.Errorf("line %d is %q, want %q", n+1, got[n], line)
		}
	}
	if images != 3 {
		t.Errorf("%d images, want those of three containers", images)
	}
}

func checkArchives(t *testing.T, dist string) {
	says := map[string]string{"kubectl-topodisk": "version", "ecs-simulator": "--version"}
	for _, archive := range artefacts()[2:] {
		dir := untar(t, filepath.Join(dist, archive))
		parts := strings.Split(strings.TrimSuffix(archive, ".tar.gz"), "_")
		name, system, architecture := parts[0], parts[2], parts[3]
		want := []string{"LICENSE", name}
		slices.Sort(want)
		if got := names(t, dir); !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", archive, got, want)
		}
		checkModules(t, filepath.Join(dir, name), purls(t, filepath.Join(dist, archive)))
		text := shell(t, dir, "go version -m "+name)
		if !strings.Contains(text, "GOOS="+system) || !strings.Contains(text, "GOARCH="+architecture) {
			t.Errorf("%s is %s", archive, text)
		}
		if system == runtime.GOOS && architecture == runtime.GOARCH {
			if said := shell(t, dir, "./"+name+" "+says[name]); said != name+" "+version+"\n" {
				t.Errorf("%s says %q", archive, said)
			}
		}
	}
}

func checkProvenance(t *testing.T, repo string) {
	dist := filepath.Join(repo, "dist")
	text, err := os.ReadFile(filepath.Join(dist, "topodisk-"+version+".provenance.json"))
	if err != nil {
		t.Fatal(err)
	}
	var s statement.Statement
	if err := errors.Join(protojson.Unmarshal(text, &s), s.Validate()); err != nil {
		t.Fatal(err)
	}
	predicate, err := protojson.Marshal(s.Predicate)
	if err != nil {
		t.Fatal(err)
	}
	var p provenance.Provenance
	if err := errors.Join(protojson.Unmarshal(predicate, &p), p.Validate()); err != nil ||
		s.PredicateType != "https://slsa.dev/provenance/v1" {
		t.Fatalf("%s: %v", s.PredicateType, err)
	}
	subjects := map[string]string{}
	for _, subject := range s.Subject {
		subjects[subject.Name] = subject.Digest["sha256"]
	}
	for _, name := range names(t, dist) {
		about := strings.HasSuffix(name, ".minisig") || strings.HasSuffix(name, ".provenance.json")
		if about == (subjects[name] == hash(t, filepath.Join(dist, name))) {
			t.Errorf("subject %s: got %q", name, subjects[name])
		}
	}
	readImage(t, filepath.Join(dist, artefacts()[0]), "sha256:"+subjects[imageName+":"+version])
	readImage(t, filepath.Join(dist, artefacts()[1]), "sha256:"+subjects[simulatorName+":"+version])
	hashes := map[string]int{}
	for _, material := range p.BuildDefinition.ResolvedDependencies {
		hashes[material.Uri] = len(material.Digest)
		if len(material.Digest) == 0 && !strings.HasPrefix(material.Uri, "pkg:golang/stdlib@") &&
			material.Uri != "pkg:golang/github.com/topodisk/topodisk" {
			t.Errorf("%s has no hash", material.Uri)
		}
	}
	for _, artefact := range artefacts() {
		for purl := range purls(t, filepath.Join(dist, artefact)) {
			if _, named := hashes[purl]; !named {
				t.Errorf("%s of %s is no material", purl, artefact)
			}
		}
	}
	commit := strings.TrimSpace(shell(t, repo, "git rev-parse HEAD"))
	if got := p.BuildDefinition.ResolvedDependencies[0].Digest["gitCommit"]; got != commit ||
		!strings.HasPrefix(p.BuildDefinition.InternalParameters.Fields["go"].GetStringValue(), "go1.") {
		t.Errorf("commit %s, want %s; %v", got, commit, p.BuildDefinition.InternalParameters)
	}
	want := "make release VERSION=" + version + " ARCHITECTURES=" + *architectures
	if got := p.BuildDefinition.ExternalParameters.Fields["command"].GetStringValue(); got != want {
		t.Errorf("command %q, want %q", got, want)
	}
}

// checkTag runs the command of docs/release.md that makes the tag: its message is the notes, headings among them.
func checkTag(t *testing.T, repo string) {
	shell(t, repo, commands(t, "git tag"), "GIT_COMMITTER_NAME=test", "GIT_COMMITTER_EMAIL=test@example.com")
	notes, err := os.ReadFile(filepath.Join(repo, "dist", "topodisk-"+version+".notes.md"))
	if err != nil {
		t.Fatal(err)
	}
	if said := shell(t, repo, "git tag --list --format='%(contents)' v"+version); strings.TrimSpace(said) != strings.TrimSpace(string(notes)) {
		t.Errorf("the tag's message is %q, want the notes %q", said, notes)
	}
}

// checkVerification runs the commands of docs/release.md, on what was made and with a byte of each file changed.
func checkVerification(t *testing.T, dist string, key testKey) {
	bin, dir := t.TempDir(), filepath.Join(t.TempDir(), "dist")
	shell(t, ".", "go build -o "+bin+" aead.dev/minisign/cmd/minisign")
	if err := os.CopyFS(dir, os.DirFS(dist)); err != nil {
		t.Fatal(err)
	}
	public, err := key.public.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "topodisk.pub"), public, 0o644); err != nil {
		t.Fatal(err)
	}
	verify, path := commands(t, "sha256sum"), "PATH="+bin+":"+os.Getenv("PATH")
	shell(t, dir, verify, path)
	for _, name := range names(t, dist) {
		file := filepath.Join(dir, name)
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		changed := bytes.Clone(content)
		changed[len(changed)*2/3] ^= 1
		if err := os.WriteFile(file, changed, 0o644); err != nil {
			t.Fatal(err)
		}
		if said, err := try(dir, verify, path); err == nil {
			t.Errorf("with a byte of %s changed it verifies: %s", name, said)
		}
		if err := os.WriteFile(file, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	shell(t, dir, verify, path)
	other := newTestKey(t)
	if public, err = other.public.MarshalText(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "topodisk.pub"), public, 0o644); err != nil {
		t.Fatal(err)
	}
	if said, err := try(dir, verify, path); err == nil {
		t.Errorf("with another key it verifies: %s", said)
	}
}

func checkWrongInputs(t *testing.T, repo string, key testKey) {
	before, secret := hash(t, filepath.Join(repo, "dist", sums)), filepath.Join(key.home, ".minisign", "topodisk.key")
	for _, c := range []struct {
		name, line string
		want       []string
	}{
		{"no version", "make release", []string{"VERSION is missing", "VERSION=0.2.0"}},
		{"an empty version", "make release VERSION=", []string{"VERSION is missing", "VERSION=0.2.0"}},
		{"a version with v", "make release VERSION=v0.2.0", []string{`VERSION="v0.2.0"`, "without v"}},
		{"two numbers", "make release VERSION=0.1", []string{`VERSION="0.1"`, "semantic version"}},
		{"build metadata", "make release VERSION=0.2.0+1", []string{`VERSION="0.2.0+1"`, "without build metadata"}},
		{"from the environment", "VERSION=0.1 make release", []string{`VERSION="0.1"`, "semantic version"}},
		{"a leading zero", "make release VERSION=0.01.0", []string{`VERSION="0.01.0"`, "semantic version"}},
		{"a version not in the changelog", "make release VERSION=9.8.7", []string{`VERSION="9.8.7"`, "CHANGELOG.md", `["0.2.0" "0.1.0"]`}},
		{"no such key", "make release VERSION=0.2.0 KEY=none.key", []string{`KEY="none.key"`, "minisign -G", "no such file"}},
		{"not a key", "make release VERSION=0.2.0 KEY=LICENSE", []string{`KEY="LICENSE"`, "minisign -G"}},
		{"no password", "make release VERSION=0.2.0 KEY=" + secret + " </dev/null", []string{secret, "KEY_PASSWORD_FILE"}},
		{"another password", "make release VERSION=0.2.0 KEY=" + secret + " KEY_PASSWORD_FILE=LICENSE",
			[]string{secret, `KEY_PASSWORD_FILE="LICENSE"`}},
		{"no such password", "make release VERSION=0.2.0 KEY=" + secret + " KEY_PASSWORD_FILE=none",
			[]string{`KEY_PASSWORD_FILE="none"`, "first line"}},
		{"a password alone", "make release VERSION=0.2.0 KEY_PASSWORD_FILE=LICENSE", []string{`KEY_PASSWORD_FILE="LICENSE"`, "only with KEY"}},
		{"no architecture", "make release VERSION=0.2.0 ARCHITECTURES=riscv64", []string{`ARCHITECTURES="riscv64"`, "amd64,arm64"}},
		{"a new file", "touch new && make release VERSION=0.2.0", []string{"working tree has changes", "?? new", "git status"}},
		{"a changed file", "echo >>LICENSE && make release VERSION=0.2.0", []string{"working tree has changes", " M LICENSE", "git status"}},
		{"a version of another commit", "trap 'git reset -q --hard HEAD~1' EXIT && git -c user.name=test -c user.email=test@example.com commit -q --allow-empty -m more && make release VERSION=0.2.0",
			[]string{`VERSION="0.2.0"`, "tag v0.2.0 is of commit"}},
		{"not a release", "rm dist/SHA256SUMS && make release VERSION=0.2.0", []string{`-out="dist"`, "earlier release"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if hash(t, filepath.Join(repo, "dist", sums)) != before {
				t.Error("a release that failed has changed the one before")
			}
			defer shell(t, repo, "git clean -fdq && git checkout -q .")
			said, err := try(repo, c.line)
			if err == nil {
				t.Fatalf("it is made: %s", said)
			}
			for _, want := range c.want {
				if !strings.Contains(said, want) {
					t.Errorf("says %q, want %q in it", said, want)
				}
			}
			if strings.Contains(said, key.password) {
				t.Errorf("says the password: %s", said)
			}
		})
	}
}

// Chart and manifests are of the release's version, whatever the chart's sources say.
func TestChartAndManifestsTellTheVersion(t *testing.T) {
	r := release{source: source{version: "9.8.7-rc.1"}, dist: t.TempDir(), work: t.TempDir()}
	dist := r.dist
	func() {
		here, err := os.Getwd()
		if err != nil {
			t.Fatal(err)
		}
		t.Chdir(root)
		defer t.Chdir(here)
		if err := errors.Join(r.addChart(t.Context()), r.addManifests(t.Context())); err != nil {
			t.Fatal(err)
		}
	}()
	chart, err := loader.LoadFile(filepath.Join(dist, "topodisk-9.8.7-rc.1.tgz"))
	if err != nil || chart.Metadata.Version != "9.8.7-rc.1" || chart.Metadata.AppVersion != "9.8.7-rc.1" {
		t.Errorf("chart %+v, %v", chart, err)
	}
	checkManifests(t, dist, "9.8.7-rc.1")
}

// The notes are a version's section and no more, with links that lead to the pages of its tag.
func TestNotes(t *testing.T) {
	const text = "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-02-01\n\n### Added\n\n- A ([a](docs/a.md#x), [b](https://b.example)).\n\n" +
		"## [0.1.1] - 2026-01-02\n\n## [0.1.0] - 2026-01-01\n\n- The first.\n\n[Unreleased]: https://c.example\n[0.2.0]: https://d.example\n"
	for _, c := range []struct{ version, notes, err string }{
		{"0.2.0", "### Added\n\n- A ([a](" + repository + "/blob/v0.2.0/docs/a.md#x), [b](https://b.example)).\n", ""},
		{"0.1.0", "- The first.\n", ""},
		{"0.1.1", "", "the section of CHANGELOG.md is empty"},
		{"0.3.0", "", `VERSION="0.3.0": allowed is a version with a section in CHANGELOG.md, such as "## [0.3.0] - 2026-01-31"; it has ["0.2.0" "0.1.1" "0.1.0"]`},
		{"Unreleased", "", "allowed is a version with a section"},
	} {
		notes, err := notesOf(text, c.version)
		if notes != c.notes || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got %q, %v; want %q, %q", c.version, notes, err, c.notes, c.err)
		}
	}
	if notes, err := notesOf(read(t, changelog), version); err != nil || !strings.Contains(notes, "### Added") {
		t.Errorf("the notes of %s are %q, %v", version, notes, err)
	}
}

// A release that is killed while it replaces another leaves nothing that looks whole and is not.
func TestReplace(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	dist := filepath.Join(dir, "dist")
	for _, kind := range []string{"the first", "the second"} {
		write("made/a", kind)
		write("dist.next/b", "of a killed release") // b is of no release
		write("dist.former/b", "of a killed release")
		count, err := replace(dist, filepath.Join(dir, "made"))
		if got := names(t, dist); err != nil || count != 1 || !slices.Equal(got, []string{"a"}) {
			t.Fatalf("%s: %d files, %v; there are %q", kind, count, err, got)
		}
		if text, err := os.ReadFile(filepath.Join(dist, "a")); err != nil || string(text) != kind {
			t.Errorf("a is %q, %v; want %q", text, err, kind)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "dist.*")); err != nil || len(left) > 0 {
		t.Errorf("left are %q, %v", left, err)
	}
}

// What a run needs lies below .build: it goes with the run, and with the next one if it was killed. That of a run that goes on stays.
func TestMakeWork(t *testing.T) {
	t.Chdir(t.TempDir())
	going, clean, err := makeWork("release")
	if err != nil {
		t.Fatal(err)
	}
	killed := filepath.Join(".build", "release", "killed")
	if err := errors.Join(os.MkdirAll(filepath.Join(killed, "dist"), 0o755), os.WriteFile(filepath.Join(killed, "dist", "a"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	next, cleanNext, err := makeWork("release")
	if err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(".build/release/*")
	if want := []string{going, next}; err != nil || len(left) != 2 || !slices.Contains(left, going) || !slices.Contains(left, next) {
		t.Errorf("there are %q, %v; want %q", left, err, want)
	}
	clean()
	cleanNext()
	if left, err := filepath.Glob(".build/release/*"); err != nil || len(left) > 0 {
		t.Errorf("left are %q, %v", left, err)
	}
}

// What a shell has started ends with it when a release is broken off.
func TestBrokenOff(t *testing.T) {
	started := filepath.Join(t.TempDir(), "started")
	if err := syscall.Mkfifo(started, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, "sh", "-c", "sh -c 'echo $$ >"+started+"; exec sleep 600'; true") }()
	text, err := os.ReadFile(started)
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "broken off") {
		t.Errorf("got %v", err)
	}
	stat := filepath.Join("/proc", strings.TrimSpace(string(text)), "cmdline")
	for deadline := time.Now().Add(10 * time.Second); ; {
		line, err := os.ReadFile(stat)
		if err != nil || len(line) == 0 { // gone, or a zombie
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still there: %q", line)
		}
		runtime.Gosched()
	}
}

// CHANGELOG.md is in the form of Keep a Changelog, and every heading of a version has its link.
func TestChangelogKeepsItsForm(t *testing.T) {
	text := read(t, "CHANGELOG.md")
	headings := regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(text, -1)
	if len(headings) == 0 || headings[0][1] != "[Unreleased]" {
		t.Fatalf("headings %q, want [Unreleased] first", headings)
	}
	for n, heading := range headings {
		match := regexp.MustCompile(`^\[([0-9]+\.[0-9]+\.[0-9]+(?:-[0-9A-Za-z.-]+)?)\] - [0-9]{4}-[0-9]{2}-[0-9]{2}$`).FindStringSubmatch(heading[1])
		if n > 0 && (match == nil || !strings.Contains(text, "\n["+match[1]+"]: https://")) {
			t.Errorf("heading %q has another form than [0.1.0] - 2026-01-31, or no link", heading[1])
		}
	}
	for _, kind := range regexp.MustCompile(`(?m)^### (.*)$`).FindAllStringSubmatch(text, -1) {
		if !slices.Contains([]string{"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}, kind[1]) {
			t.Errorf("kind of change %q is none of Keep a Changelog's", kind[1])
		}
	}
}

// The newest version of CHANGELOG.md is that of the chart, and of all that names this release.
func TestEveryFileNamesTheSameVersion(t *testing.T) {
	if newest := versionHeading.FindStringSubmatch(read(t, changelog)); newest == nil || newest[1] != version {
		t.Errorf("the newest version of %s is %q, want %s", changelog, newest, version)
	}
	for file, line := range map[string]string{
		"charts/topodisk/Chart.yaml": "version: " + version + "\nappVersion: \"" + version + "\"\n",
		"deploy/kustomization.yaml":  "newTag: " + version + "\n",
		"Dockerfile":                 "VERSION=" + version + " ",
		"Makefile":                   "VERSION (" + version + ")",
		"docs/install.md":            "topodisk-" + version + ".tgz",
		"docs/upgrade.md":            "--set image.tag=" + version + "\n",
		"test/install/dist_test.go":  "releaseVersion = \"" + version + "\"\n",
		"test/soak/build.go":         "imageVersion = \"" + version + "\"\n",
		"test/release/main.go":       "-version " + version + " ",
		"SECURITY.md":                "| " + version[:strings.LastIndex(version, ".")] + " | yes, ",
	} {
		if !strings.Contains(read(t, file), line) {
			t.Errorf("%s lacks %q", file, line)
		}
	}
}

// untar unpacks an archive, which gzip may have compressed, and returns the directory.
func untar(t *testing.T, name string) string {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if !strings.HasSuffix(name, "gz") {
		return unpack(t, file)
	}
	plain, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	return unpack(t, plain)
}

// unpack writes the directories and files of an archive.
func unpack(t *testing.T, from io.Reader) string {
	t.Helper()
	dir := t.TempDir()
	for archive := tar.NewReader(from); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, header.Name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, content, header.FileInfo().Mode().Perm())); err != nil {
			t.Fatal(err)
		}
	}
}
