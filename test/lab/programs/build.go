// Package programs builds what a lab runs, from source: Kubernetes' programs from the module test/kube, and topodisk's own.
// It uses the standard library alone, so that the command that shows how far the long first build is (test/build) is
// itself compiled in seconds.
package programs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Dirs are the directories of what was built.
type Dirs struct {
	Kube     string // etcd, Kubernetes' programs and kwok
	Topodisk string // ecs-simulator, disk-driver, disk-provisioner; not bin/, whose programs have their version stamped
	Kubelet  string // kubelet; only BuildNodes builds it, and what follows
	Sidecars string // CSI sidecars, snapshot-controller and, in crds, the kinds that it keeps
	NodeInit string // the program that is the first in a node and in a Pod
}

// FindRoot returns the root of the checkout that contains the working directory: where test/kube is.
func FindRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "test", "kube", "go.mod")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("%s is not inside a checkout of topodisk (no test/kube/go.mod above it)", dir)
		}
	}
}

// kubePackages are the main packages of the module test/kube that a lab needs; programs.go there keeps them required.
var kubePackages = []string{
	"go.etcd.io/etcd/server/v3",
	"k8s.io/kubernetes/cmd/kube-apiserver",
	"k8s.io/kubernetes/cmd/kube-controller-manager",
	"k8s.io/kubernetes/cmd/kube-scheduler",
	"k8s.io/kubernetes/cmd/kubectl",
	"sigs.k8s.io/kwok/cmd/kwok",
}

// kubeletPackages are those that real nodes need besides, sidecarPackages come from the module test/kube/sidecars.
var (
	kubeletPackages = []string{"k8s.io/kubernetes/cmd/kubelet"}
	sidecarPackages = []string{
		"github.com/kubernetes-csi/external-attacher/v4/cmd/csi-attacher",
		"github.com/kubernetes-csi/external-resizer/v2/cmd/csi-resizer",
		"github.com/kubernetes-csi/external-snapshotter/v8/cmd/csi-snapshotter",
		"github.com/kubernetes-csi/external-snapshotter/v8/cmd/snapshot-controller",
	}
)

// topodiskPackages are our own programs.
var topodiskPackages = []string{
	"github.com/topodisk/topodisk/cmd/disk-driver",
	"github.com/topodisk/topodisk/cmd/disk-provisioner",
	"github.com/topodisk/topodisk/cmd/ecs-simulator",
}

// builtName is what `go build` calls the program of a main package, programName what it is called here.
func builtName(pkg string) string {
	if name := path.Base(pkg); name != "v3" {
		return name
	}
	return path.Base(path.Dir(pkg))
}

func programName(pkg string) string {
	if name := builtName(pkg); name != "server" {
		return name
	}
	return "etcd"
}

// Build builds what is not built yet: Kubernetes' programs once for each state of test/kube and each version of Go
// (about ten minutes on two cores, then it is skipped), topodisk's own always (the Go build cache makes it a second).
// out is told how far it is: on a terminal in one line that changes, else in a line every few seconds.
func Build(ctx context.Context, root string, out *os.File) (Dirs, error) {
	return buildAll(ctx, root, out, goBuild{into: filepath.Join(root, ".build", "run")})
}

// BuildWatched builds the same, but topodisk's programs with the race detector, which needs a C compiler.
func BuildWatched(ctx context.Context, root string, out *os.File) (Dirs, error) {
	return buildAll(ctx, root, out, goBuild{into: filepath.Join(root, ".build", "race"), race: true})
}

// BuildNodes builds the same, and what real nodes and the sidecars need besides.
func BuildNodes(ctx context.Context, root string, out *os.File) (Dirs, error) {
	dirs := BuiltNodes(root)
	if _, err := Build(ctx, root, out); err != nil {
		return dirs, err
	}
	return dirs, buildNodes(ctx, root, dirs, out)
}

// BuiltNodes returns where BuildNodes puts what it builds.
func BuiltNodes(root string) Dirs {
	dir := filepath.Join(root, ".build")
	return Dirs{
		Kube: filepath.Join(dir, "kube"), Topodisk: filepath.Join(dir, "run"), Kubelet: filepath.Join(dir, "kubelet"),
		Sidecars: filepath.Join(dir, "sidecars"), NodeInit: filepath.Join(dir, "run", "nodeinit"),
	}
}

func buildNodes(ctx context.Context, root string, dirs Dirs, out *os.File) error {
	unlock, err := lockBuild(filepath.Join(root, ".build"), out)
	if err != nil {
		return err
	}
	defer unlock()
	for _, e := range []external{
		{module: filepath.Join(root, "test", "kube"), into: dirs.Kubelet, title: "kubelet", says: "half a minute on two cores", kubernetes: true, packages: kubeletPackages},
		sidecars(root, dirs),
	} {
		if err := e.build(ctx, out); err != nil {
			return fmt.Errorf("build %s: %w", e.title, err)
		}
	}
	init := goBuild{dir: root, into: filepath.Dir(dirs.NodeInit), title: "nodeinit", out: out, ldflags: "-s -w",
		packages: []string{"github.com/topodisk/topodisk/test/lab/nodeinit"}}
	return init.run(ctx)
}

// BuildSidecars builds what Build does, and the CSI sidecars.
func BuildSidecars(ctx context.Context, root string, out *os.File) (Dirs, error) {
	dirs, err := Build(ctx, root, out)
	if err != nil {
		return dirs, err
	}
	unlock, err := lockBuild(filepath.Join(root, ".build"), out)
	if err != nil {
		return dirs, err
	}
	defer unlock()
	dirs.Sidecars = BuiltNodes(root).Sidecars
	if err := sidecars(root, dirs).build(ctx, out); err != nil {
		return dirs, fmt.Errorf("build the CSI sidecars: %w", err)
	}
	return dirs, nil
}

func sidecars(root string, dirs Dirs) external {
	return external{module: filepath.Join(root, "test", "kube", "sidecars"), into: dirs.Sidecars, title: "the CSI sidecars", says: "about five minutes on two cores", packages: sidecarPackages}
}

// Suite are the programs of Kubernetes' own tests of storage.
type Suite struct {
	Tests   string // the tests, which need to be told of a driver
	Ginkgo  string // runs them side by side
	Agnhost string // the program that their Pods run
}

// BuiltSuite returns where BuildSuite puts what it builds.
func BuiltSuite(root string) Suite {
	dir := filepath.Join(root, ".build", "suite")
	return Suite{Tests: filepath.Join(dir, "storage.test"), Ginkgo: filepath.Join(dir, "ginkgo"), Agnhost: filepath.Join(dir, "agnhost")}
}

// suitePackages go with the tests.
var suitePackages = []string{"github.com/onsi/ginkgo/v2/ginkgo", "k8s.io/kubernetes/test/images/agnhost"}

// BuildSuite builds Kubernetes' own tests of storage.
func BuildSuite(ctx context.Context, root string, out *os.File) error {
	unlock, err := lockBuild(filepath.Join(root, ".build"), out)
	if err != nil {
		return err
	}
	defer unlock()
	module := filepath.Join(root, "test", "kube")
	tools := external{module: module, into: filepath.Join(root, ".build", "suite"), title: "what Kubernetes' tests need", says: "half a minute on two cores",
		kubernetes: true, packages: suitePackages}
	if err := tools.build(ctx, out); err != nil {
		return fmt.Errorf("build %s: %w", tools.title, err)
	}
	fmt.Fprintln(out, "building Kubernetes' tests of storage: about three minutes on two cores the first time")
	tests := goBuild{dir: module, out: out}
	return tests.goTool(ctx, []string{"test", "-c", "-trimpath", "-ldflags=-s -w", "-o", BuiltSuite(root).Tests, "./storage"}, nil, func(line string) { fmt.Fprintln(out, line) })
}

// buildAll builds Kubernetes' programs, and topodisk's as build says.
func buildAll(ctx context.Context, root string, out *os.File, build goBuild) (Dirs, error) {
	dirs := Dirs{Kube: filepath.Join(root, ".build", "kube"), Topodisk: build.into}
	if _, err := exec.LookPath("go"); err != nil {
		return dirs, errors.New("there is no go in PATH: install Go 1.26 or later, see https://go.dev/doc/install")
	}
	unlock, err := lockBuild(filepath.Join(root, ".build"), out)
	if err != nil {
		return dirs, err
	}
	defer unlock()
	kube := external{module: filepath.Join(root, "test", "kube"), into: dirs.Kube, packages: kubePackages, kubernetes: true,
		title: "Kubernetes' programs, etcd and kwok", says: "about ten minutes on two cores"}
	if err := kube.build(ctx, out); err != nil {
		return dirs, fmt.Errorf("build Kubernetes' programs: %w", err)
	}
	build.dir, build.packages, build.title, build.out = root, topodiskPackages, "topodisk", out
	if err := build.run(ctx); err != nil {
		return dirs, fmt.Errorf("build topodisk's programs: %w", err)
	}
	return dirs, nil
}

// BuildTopodisk builds topodisk's programs alone, and returns their directory.
func BuildTopodisk(ctx context.Context, root string, out *os.File) (string, error) {
	unlock, err := lockBuild(filepath.Join(root, ".build"), out)
	if err != nil {
		return "", err
	}
	defer unlock()
	build := goBuild{dir: root, into: filepath.Join(root, ".build", "run"), packages: topodiskPackages, title: "topodisk", out: out}
	if err := build.run(ctx); err != nil {
		return "", fmt.Errorf("build topodisk's programs: %w", err)
	}
	return build.into, nil
}

// BuildDemo builds the demo itself, once Build has built what it runs, and returns its path.
func BuildDemo(ctx context.Context, root string, out *os.File) (string, error) {
	dir := filepath.Join(root, ".build", "run")
	build := goBuild{dir: root, into: dir, packages: []string{"github.com/topodisk/topodisk/test/demo"}, title: "demo", out: out}
	if err := build.run(ctx); err != nil {
		return "", fmt.Errorf("build the demo: %w", err)
	}
	return filepath.Join(dir, "demo"), nil
}

// BuildHelm builds helm, of the version that the chart is tested with, and returns its path.
func BuildHelm(ctx context.Context, root string, out *os.File) (string, error) {
	unlock, err := lockBuild(filepath.Join(root, ".build"), out)
	if err != nil {
		return "", err
	}
	defer unlock()
	helm := external{module: filepath.Join(root, "test", "chart"), into: filepath.Join(root, ".build", "helm"), title: "helm", says: "three minutes on two cores",
		packages: []string{"helm.sh/helm/v3/cmd/helm"}}
	if err := helm.build(ctx, out); err != nil {
		return "", fmt.Errorf("build helm: %w", err)
	}
	return BuiltHelm(root), nil
}

// BuiltHelm returns where BuildHelm puts helm.
func BuiltHelm(root string) string { return filepath.Join(root, ".build", "helm", "helm") }

// BuildUpstream builds upstream's csi-provisioner, which topodisk's is measured against, and the program that times its
// requirement from the module test/kube/upstream, and returns their directory. The Go build cache makes all but the
// first time quick.
func BuildUpstream(ctx context.Context, root string, out *os.File) (string, error) {
	dir := filepath.Join(root, ".build", "upstream")
	build := goBuild{dir: filepath.Join(root, "test", "kube", "upstream"), into: dir, title: "csi-provisioner", out: out,
		packages: []string{"github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner", "./requirement"}, ldflags: "-s -w"}
	if err := build.run(ctx); err != nil {
		return "", fmt.Errorf("build csi-provisioner: %w", err)
	}
	return dir, nil
}

// BuildFits builds the program that asks the scheduler's filter of volumes about nodes that don't exist (test/kube/fits),
// and returns its path.
func BuildFits(ctx context.Context, root string, out *os.File) (string, error) {
	dir := filepath.Join(root, ".build", "fits")
	build := goBuild{dir: filepath.Join(root, "test", "kube"), into: dir, title: "the scheduler's filter of volumes", out: out, packages: []string{"./fits"}, ldflags: "-s -w"}
	if err := build.run(ctx); err != nil {
		return "", fmt.Errorf("build fits: %w", err)
	}
	return filepath.Join(dir, "fits"), nil
}

// snapshotterModule has the kinds of external-snapshotter; the module test/kube/sidecars pins it.
const snapshotterModule = "github.com/kubernetes-csi/external-snapshotter/client/v8"

// SnapshotKinds returns the files of the CustomResourceDefinitions of snapshots, where the Go module cache has them.
func SnapshotKinds(ctx context.Context, root string) ([]string, error) {
	module := filepath.Join(root, "test", "kube", "sidecars")
	if _, err := goOutput(ctx, module, "mod", "download", snapshotterModule); err != nil {
		return nil, fmt.Errorf("download %s: %w", snapshotterModule, err)
	}
	dir, err := goOutput(ctx, module, "list", "-m", "-f", "{{.Dir}}", snapshotterModule)
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "config", "crd", "*snapshot.storage.k8s.io_*.yaml"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s has no config/crd/*snapshot.storage.k8s.io_*.yaml", dir)
	}
	return files, err
}

// lockBuild lets one build at a time work in a checkout.
func lockBuild(dir string, out io.Writer) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		fmt.Fprintln(out, "waiting for another build in this checkout")
		if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
		}
	}
	return func() { file.Close() }, nil
}

// external are programs of others that one module builds.
type external struct {
	module, into string // directories
	title, says  string // what is being built, and how long it takes the first time
	kubernetes   bool   // its version is stamped
	packages     []string
}

// build builds the programs unless they are built from the same already.
func (e external) build(ctx context.Context, out *os.File) error {
	stamp, err := readStamp(ctx, e.module, e.packages)
	if err != nil {
		return err
	}
	if stamp.matches(e.into, e.packages) {
		return nil
	}
	build := goBuild{dir: e.module, into: e.into, packages: e.packages, title: e.title, ldflags: "-s -w", out: out}
	if e.kubernetes {
		version, err := goOutput(ctx, e.module, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
		if err != nil {
			return err
		}
		build.ldflags = versionFlags(version)
	}
	fmt.Fprintf(out, "building %s from source: %s, once\n", e.title, e.says)
	if err := stamp.clear(e.into); err != nil {
		return err
	}
	if err := build.run(ctx); err != nil {
		return err
	}
	for _, pkg := range e.packages {
		if builtName(pkg) != programName(pkg) {
			if err := os.Rename(filepath.Join(e.into, builtName(pkg)), filepath.Join(e.into, programName(pkg))); err != nil {
				return err
			}
		}
	}
	return stamp.write(e.into)
}

// versionFlags stamp the version that Kubernetes' own build would: without, its clients and servers say v0.0.0.
func versionFlags(version string) string {
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	flags := "-s -w"
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags += fmt.Sprintf(" -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s -X %[1]s.gitTreeState=clean",
			pkg, version, major, minor)
	}
	return flags
}

// goBuild is one run of `go build` that reports how far it is.
type goBuild struct {
	dir, into, title, ldflags string
	packages                  []string
	race                      bool
	out                       *os.File
}

func (b goBuild) run(ctx context.Context) error {
	if err := os.MkdirAll(b.into, 0o755); err != nil {
		return err
	}
	begin := time.Now()
	show := startDisplay(b.out, newProgress(b.title, b.packages), func() int { return countBuilt(b.into, b.packages, begin) })
	defer show.end()

	listed := 0
	list := append([]string{"list", "-deps"}, b.packages...)
	if err := b.goTool(ctx, list, func(string) { listed++ }, show.feed); err != nil {
		return err
	}
	show.packages(listed)
	args := []string{"build", "-v", "-buildvcs=false", "-o", b.into + string(filepath.Separator)}
	if b.race {
		args = append(args, "-race") // without -trimpath: what `go test -race` has compiled serves here too
	} else {
		args = append(args, "-trimpath")
	}
	if b.ldflags != "" {
		args = append(args, "-ldflags="+b.ldflags)
	}
	return b.goTool(ctx, append(args, b.packages...), nil, show.feed)
}

// goTool runs the go command, hands over its lines, and turns a failure into an error that says what to do.
func (b goBuild) goTool(ctx context.Context, args []string, stdout, stderr func(string)) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b.race {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // lets go remove its temporary files
	cmd.WaitDelay = 10 * time.Second
	var said []string
	output := lineWriter{each: func(line string) {
		said = append(said, line)
		stderr(line)
	}}
	cmd.Stderr = &output
	if stdout != nil {
		cmd.Stdout = &lineWriter{each: stdout}
	}
	err := cmd.Run()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return explainBuild(args[0], err, said)
}

// lineWriter calls each for every whole line written to it.
type lineWriter struct {
	each func(string)
	rest string
}

func (w *lineWriter) Write(b []byte) (int, error) {
	w.rest += string(b)
	for {
		line, rest, whole := strings.Cut(w.rest, "\n")
		if !whole {
			return len(b), nil
		}
		w.rest = rest
		w.each(line)
	}
}

// mostLines of what a failed go command has said are shown.
const mostLines = 15

// explainBuild adds to a failed go command what the usual causes need.
func explainBuild(verb string, err error, said []string) error {
	said = slices.DeleteFunc(slices.Clone(said), func(line string) bool { return isPackage(line) || isDownload(line) })
	text := strings.Join(said, "\n")
	hint := ""
	for _, cause := range []struct{ hint, signs string }{
		{"the disk is full: the build needs about 6 GB below `go env GOCACHE GOMODCACHE`", "no space left on device|disk quota exceeded"},
		{"the module proxy (`go env GOPROXY`) was not reached: check the network, then run it again; it goes on where it stopped",
			"dial tcp|no such host|i/o timeout|TLS handshake timeout|connection refused|connection reset|proxyconnect|network is unreachable|502 Bad Gateway|503 Service"},
		{"the kernel ended the compiler: the build needs about 4 GB of memory", "signal: killed"},
	} {
		for sign := range strings.SplitSeq(cause.signs, "|") {
			if strings.Contains(text, sign) {
				hint = "\n" + cause.hint
			}
		}
	}
	said = said[max(0, len(said)-mostLines):]
	return fmt.Errorf("go %s: %w\n    | %s%s", verb, err, strings.Join(said, "\n    | "), hint)
}

// countBuilt counts the programs that this run has written.
func countBuilt(dir string, packages []string, since time.Time) int {
	n := 0
	for _, pkg := range packages {
		if info, err := os.Stat(filepath.Join(dir, builtName(pkg))); err == nil && !info.ModTime().Before(since) {
			n++
		}
	}
	return n
}

// goOutput runs the go command for one line of output.
func goOutput(ctx context.Context, dir string, args ...string) (string, error) {
	var line string
	b := goBuild{dir: dir}
	err := b.goTool(ctx, args, func(s string) { line = s }, func(string) {})
	return line, err
}

// goVersion is what programs depend on besides the module: compiler and platform.
func goVersion(ctx context.Context, module string) (string, error) {
	version, err := goOutput(ctx, module, "env", "GOVERSION")
	return version + " " + runtime.GOOS + "/" + runtime.GOARCH, err
}
