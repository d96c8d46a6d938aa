// Package programs builds what a lab runs, from source: Kubernetes' programs from the modules of test/kube, and topodisk's own.
// It uses the standard library alone, so that the command that shows how far the long first build is (test/build) is
// itself compiled in seconds.
package programs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// Dirs are the directories of what was built.
type Dirs struct {
	Version    Version // of Kubernetes
	Kube       string  // Kubernetes' programs
	Etcd       string  // etcd and kwok, the same for every version of Kubernetes
	Topodisk   string  // ecs-simulator, disk-driver, disk-provisioner; not bin/, whose programs have their version stamped
	Kubelet    string  // kubelet; only BuildNodes builds it, and what follows
	Containerd string  // containerd; empty where Debian's is good enough
	Sidecars   string  // CSI sidecars, snapshot-controller and, in crds, the kinds that it keeps
	NodeInit   string  // the program that is the first in a node and in a Pod
}

// FindRoot returns the root of the checkout that contains the working directory: where test/kube is.
func FindRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "test", "kube", "etcd", "go.mod")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("%s is not inside a checkout of topodisk (no test/kube/etcd/go.mod above it)", dir)
		}
	}
}

// kubePackages are the main packages of a version's module that a lab needs; programs.go there keeps them required.
var kubePackages = []string{
	"k8s.io/kubernetes/cmd/kube-apiserver",
	"k8s.io/kubernetes/cmd/kube-controller-manager",
	"k8s.io/kubernetes/cmd/kube-scheduler",
	"k8s.io/kubernetes/cmd/kubectl",
}

// etcdPackages come from the module test/kube/etcd.
var etcdPackages = []string{
	"go.etcd.io/etcd/server/v3",
	"sigs.k8s.io/kwok/cmd/kwok",
}

// kubeletPackages are those that real nodes need besides, containerdPackages come from the module test/kube/containerd and
// sidecarPackages from test/kube/sidecars.
var (
	kubeletPackages    = []string{"k8s.io/kubernetes/cmd/kubelet"}
	containerdPackages = []string{
		"github.com/containerd/containerd/v2/cmd/containerd",
		"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
		"github.com/containerd/containerd/v2/cmd/ctr",
	}
	sidecarPackages = []string{
		"github.com/kubernetes-csi/external-attacher/v4/cmd/csi-attacher",
		"github.com/kubernetes-csi/external-resizer/v2/cmd/csi-resizer",
		"github.com/kubernetes-csi/external-snapshotter/v8/cmd/csi-snapshotter",
		"github.com/kubernetes-csi/external-snapshotter/v8/cmd/snapshot-controller",
	}
)

// controllerPackages are the programs of the controller, topodiskPackages all of our own that a lab runs.
var (
	controllerPackages = []string{
		"github.com/topodisk/topodisk/cmd/disk-driver",
		"github.com/topodisk/topodisk/cmd/disk-provisioner",
	}
	topodiskPackages = append(controllerPackages[:2:2], "github.com/topodisk/topodisk/cmd/ecs-simulator")
)

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

// Build builds what is not built yet: Kubernetes' programs once for each state of the version's module and each version of
// Go (about ten minutes on two cores, then it is skipped), topodisk's own always (the Go build cache makes it a second).
// out is told how far it is: on a terminal in one line that changes, else in a line every few seconds.
func (v Version) Build(ctx context.Context, root string, out *os.File) (Dirs, error) {
	return v.build(ctx, root, out, goBuild{into: filepath.Join(root, ".build", "run")})
}

// BuildRace builds the same, but topodisk's programs with the race detector, which needs a C compiler.
func (v Version) BuildRace(ctx context.Context, root string, out *os.File) (Dirs, error) {
	return v.build(ctx, root, out, goBuild{into: filepath.Join(root, ".build", "race"), race: true})
}

// BuildNodes builds what Build does, and what real nodes and the sidecars need besides.
func (v Version) BuildNodes(ctx context.Context, root string, out *os.File) (Dirs, error) {
	dirs := v.BuiltNodes(root)
	if _, err := v.Build(ctx, root, out); err != nil {
		return dirs, err
	}
	wanted := []external{
		{module: v.module(root), into: dirs.Kubelet, title: "kubelet " + string(v),
			says: "half a minute on two cores", kubernetes: true, packages: kubeletPackages},
		sidecars(root, dirs),
	}
	if dirs.Containerd != "" {
		wanted = append(wanted, external{module: filepath.Join(root, "test", "kube", "containerd"), into: dirs.Containerd,
			title: "containerd", says: "two minutes on two cores", packages: containerdPackages})
	}
	for _, e := range wanted {
		if err := e.build(ctx, out); err != nil {
			return dirs, err
		}
	}
	_, err := buildOwn(ctx, root, out, "nodeinit", "github.com/topodisk/topodisk/test/lab/nodeinit")
	return dirs, err
}

// BuiltNodes returns where BuildNodes puts what it builds.
func (v Version) BuiltNodes(root string) Dirs {
	dir := filepath.Join(root, ".build")
	dirs := Dirs{
		Version: v, Kube: filepath.Join(v.builtDir(root), "kube"), Kubelet: filepath.Join(v.builtDir(root), "kubelet"),
		Etcd: filepath.Join(dir, "etcd"), Topodisk: filepath.Join(dir, "run"), Sidecars: filepath.Join(dir, "sidecars"),
		NodeInit: filepath.Join(dir, "run", "nodeinit"),
	}
	if v.AtLeast(firstWithContainerd2) {
		dirs.Containerd = filepath.Join(dir, "containerd")
	}
	return dirs
}

// BuildSidecars builds what Build does, and the CSI sidecars.
func BuildSidecars(ctx context.Context, root string, out *os.File) (Dirs, error) {
	dirs, err := Default.Build(ctx, root, out)
	if err != nil {
		return dirs, err
	}
	dirs.Sidecars = Default.BuiltNodes(root).Sidecars
	return dirs, sidecars(root, dirs).build(ctx, out)
}

func sidecars(root string, dirs Dirs) external {
	return external{module: filepath.Join(root, "test", "kube", "sidecars"), into: dirs.Sidecars,
		title: "the CSI sidecars", says: "about five minutes on two cores", packages: sidecarPackages}
}

// Suite are the programs of Kubernetes' own tests of storage.
type Suite struct {
	Tests   string // the tests, which need to be told of a driver
	Ginkgo  string // runs them side by side
	Agnhost string // the program that their Pods run
}

// BuiltSuite returns where BuildSuite puts what it builds.
func (v Version) BuiltSuite(root string) Suite {
	dir := filepath.Join(v.builtDir(root), "suite")
	return Suite{Tests: filepath.Join(dir, "storage.test"), Ginkgo: filepath.Join(dir, "ginkgo"), Agnhost: filepath.Join(dir, "agnhost")}
}

// suitePackages go with the tests.
var suitePackages = []string{"github.com/onsi/ginkgo/v2/ginkgo", "k8s.io/kubernetes/test/images/agnhost"}

// BuildSuite builds Kubernetes' own tests of storage.
func (v Version) BuildSuite(ctx context.Context, root string, out *os.File) error {
	module := v.module(root)
	tools := external{module: module, into: filepath.Join(v.builtDir(root), "suite"), title: "what Kubernetes' tests need", says: "half a minute on two cores",
		kubernetes: true, packages: suitePackages}
	if err := tools.build(ctx, out); err != nil {
		return err
	}
	unlock, err := lockBuild(tools.into, out)
	if err != nil {
		return err
	}
	defer unlock()
	fmt.Fprintln(out, "building Kubernetes' tests of storage: about three minutes on two cores the first time")
	tests := goBuild{dir: module, out: out}
	return tests.goTool(ctx, []string{"test", "-c", "-trimpath", "-ldflags=-s -w", "-o", v.BuiltSuite(root).Tests, "./storage"}, nil,
		func(line string) { fmt.Fprintln(out, line) })
}

// BuildCrictl builds crictl, with which Kubernetes' disruptive tests stop containers.
func BuildCrictl(ctx context.Context, root string, out *os.File) error {
	crictl := external{module: filepath.Join(root, "test", "kube", "cri-tools"), into: BuiltCrictl(root), title: "crictl",
		says: "half a minute on two cores", packages: []string{"sigs.k8s.io/cri-tools/cmd/crictl"}}
	return crictl.build(ctx, out)
}

// BuiltCrictl returns the directory that BuildCrictl puts crictl in.
func BuiltCrictl(root string) string { return filepath.Join(root, ".build", "crictl") }

// SuiteImages is the source that names the images of the version's tests.
func (v Version) SuiteImages(ctx context.Context, root string) ([]byte, error) {
	files, err := kindsOf(ctx, v.module(root), "k8s.io/kubernetes", "test/utils/image/manifest.go")
	if err != nil {
		return nil, err
	}
	return os.ReadFile(files[0])
}

// build builds Kubernetes' programs, and topodisk's as ours says.
func (v Version) build(ctx context.Context, root string, out *os.File, ours goBuild) (Dirs, error) {
	built := v.BuiltNodes(root)
	dirs := Dirs{Version: v, Kube: built.Kube, Etcd: built.Etcd, Topodisk: ours.into}
	if _, err := exec.LookPath("go"); err != nil {
		return dirs, errors.New("there is no go in PATH: install Go 1.26 or later, see https://go.dev/doc/install")
	}
	for _, e := range []external{
		{module: v.module(root), into: dirs.Kube, title: "Kubernetes " + string(v),
			says: "about ten minutes on two cores", kubernetes: true, packages: kubePackages},
		{module: filepath.Join(root, "test", "kube", "etcd"), into: dirs.Etcd, title: "etcd and kwok",
			says: "two minutes on two cores", packages: etcdPackages},
	} {
		if err := e.build(ctx, out); err != nil {
			return dirs, err
		}
	}
	ours.dir, ours.packages, ours.title, ours.out = root, topodiskPackages, "topodisk", out
	return dirs, ours.run(ctx)
}

// buildOwn builds packages of the checkout each time, and returns their directory.
func buildOwn(ctx context.Context, root string, out *os.File, title string, packages ...string) (string, error) {
	build := goBuild{dir: root, into: filepath.Join(root, ".build", "run"), title: title, packages: packages, out: out}
	return build.into, build.run(ctx)
}

// BuildTopodisk builds topodisk's programs alone, and returns their directory.
func BuildTopodisk(ctx context.Context, root string, out *os.File) (string, error) {
	return buildOwn(ctx, root, out, "topodisk", topodiskPackages...)
}

// BuildDemo builds the demo itself, once Build has built what it runs.
func BuildDemo(ctx context.Context, root string, out *os.File) error {
	_, err := buildOwn(ctx, root, out, "the demo", "github.com/topodisk/topodisk/test/demo")
	return err
}

// BuildHelm builds helm, of the version that the chart is tested with, and returns its path.
func BuildHelm(ctx context.Context, root string, out *os.File) (string, error) {
	helm := external{module: filepath.Join(root, "test", "chart"), into: filepath.Join(root, ".build", "helm"), title: "helm",
		says: "three minutes on two cores", packages: []string{"helm.sh/helm/v3/cmd/helm"}}
	return BuiltHelm(root), helm.build(ctx, out)
}

// BuiltHelm returns where BuildHelm puts helm.
func BuiltHelm(root string) string { return filepath.Join(root, ".build", "helm", "helm") }

// RenderChart returns what the helm that BuildHelm has built renders of a chart for the version of Kubernetes that labs run, with values and
// further arguments.
func RenderChart(ctx context.Context, root, chart, values string, args ...string) ([]byte, error) {
	args = append([]string{"template", "topodisk", chart, "--kube-version=" + string(Default), "--values=-"}, args...)
	helm := exec.CommandContext(ctx, BuiltHelm(root), args...)
	helm.Stdin, helm.Stderr = strings.NewReader(values), os.Stderr
	text, err := helm.Output()
	if err != nil {
		return nil, fmt.Errorf("helm template: %w", err)
	}
	return text, nil
}

// BuildUpstream builds upstream's csi-provisioner, which topodisk's is measured against, from the module test/kube/upstream, and
// returns its directory. The Go build cache makes all but the first time quick.
func BuildUpstream(ctx context.Context, root string, out *os.File) (string, error) {
	dir := filepath.Join(root, ".build", "upstream")
	build := goBuild{dir: filepath.Join(root, "test", "kube", "upstream"), into: dir, title: "csi-provisioner", out: out,
		packages: []string{"github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner"}, ldflags: "-s -w"}
	return dir, build.run(ctx)
}

// BuildFits builds the program that asks the scheduler's filter of volumes about nodes that don't exist (test/kube/v1.37/fits),
// and returns its path.
func BuildFits(ctx context.Context, root string, out *os.File) (string, error) {
	dir := filepath.Join(root, ".build", "fits")
	build := goBuild{dir: Default.module(root), into: dir, title: "the scheduler's filter of volumes", out: out, packages: []string{"./fits"}, ldflags: "-s -w"}
	return filepath.Join(dir, "fits"), build.run(ctx)
}

// Explain are the programs that test/explain needs besides those of real nodes.
type Explain struct {
	Plugin    string // kubectl-topodisk
	Karpenter string // with the cloud provider for nodes that kwok keeps
}

// BuiltExplain returns where BuildExplain puts what it builds.
func BuiltExplain(root string) Explain {
	return Explain{Plugin: filepath.Join(root, ".build", "run", "kubectl-topodisk"), Karpenter: filepath.Join(root, ".build", "karpenter", "kwok")}
}

// BuildExplain builds what real nodes need, kubectl-topodisk and Karpenter.
func BuildExplain(ctx context.Context, root string, out *os.File) error {
	if _, err := Default.BuildNodes(ctx, root, out); err != nil {
		return err
	}
	if _, err := buildOwn(ctx, root, out, "kubectl-topodisk", "github.com/topodisk/topodisk/cmd/kubectl-topodisk"); err != nil {
		return err
	}
	karpenter := external{module: karpenterModule(root), into: filepath.Dir(BuiltExplain(root).Karpenter), title: "Karpenter",
		says: "three minutes on two cores", packages: []string{"sigs.k8s.io/karpenter/kwok"}}
	return karpenter.build(ctx, out)
}

func karpenterModule(root string) string { return filepath.Join(root, "test", "kube", "karpenter") }

// KarpenterKinds returns the files of Karpenter's CustomResourceDefinitions, where the Go module cache has them.
func KarpenterKinds(ctx context.Context, root string) ([]string, error) {
	return kindsOf(ctx, karpenterModule(root), "sigs.k8s.io/karpenter", "pkg/apis/crds/*.yaml", "kwok/apis/crds/*.yaml")
}

// snapshotterModule has the kinds of external-snapshotter; the module test/kube/sidecars pins it.
const snapshotterModule = "github.com/kubernetes-csi/external-snapshotter/client/v8"

// SnapshotKinds returns the files of the CustomResourceDefinitions of snapshots, where the Go module cache has them.
func SnapshotKinds(ctx context.Context, root string) ([]string, error) {
	return kindsOf(ctx, filepath.Join(root, "test", "kube", "sidecars"), snapshotterModule, "config/crd/*snapshot.storage.k8s.io_*.yaml")
}

// kindsOf returns the files of a module that match the patterns, each of which must match one, in the version that another module
// requires.
func kindsOf(ctx context.Context, by, module string, patterns ...string) (files []string, err error) {
	if _, err := goOutput(ctx, by, "mod", "download", module); err != nil {
		return nil, fmt.Errorf("download %s: %w", module, err)
	}
	dir, err := goOutput(ctx, by, "list", "-m", "-f", "{{.Dir}}", module)
	if err != nil {
		return nil, err
	}
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(pattern)))
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("%s has no %s", dir, pattern)
		}
		files = append(files, found...)
	}
	return files, nil
}
