// Storage runs Kubernetes' own tests of external storage on a lab with real nodes, and writes down which of them the driver
// passes. It needs root.
//
//	storage [-quick] [-focus REGEXP] [-kube VERSION] [-write docs/conformance.md]
//	storage -from REPORT [-from REPORT...] -write docs/conformance.md
//
// With -quick it runs what a few minutes are enough for, with -from nothing.
package main

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/images"
	"github.com/topodisk/topodisk/test/lab/programs"
	"github.com/topodisk/topodisk/test/lab/sandbox"
)

// manifests are the driver, as the tests are told of it, the classes that they name, and a policy for their claims.
//
//go:embed *.yaml
var manifests embed.FS

// options are the flags.
type options struct {
	version      programs.Version
	quick        bool
	focus, write string
	counts       string
	from         []string
	procs        int
}

// which says which tests are run.
func (o options) which() string {
	switch {
	case o.focus != "":
		return fmt.Sprintf("the %q", o.focus)
	case o.quick:
		return "the quick"
	}
	return "all"
}

func main() {
	o := options{version: programs.Default}
	flag.Var(&o.version, "kube", "`VERSION` of Kubernetes: "+programs.Allowed())
	flag.BoolVar(&o.quick, "quick", false, "see what the driver can do once, in minutes")
	flag.StringVar(&o.focus, "focus", "", "regular expression of the tests to run; empty: all")
	flag.StringVar(&o.write, "write", "", "page to write the results to")
	flag.StringVar(&o.counts, "counts", "", "`FILE` to write to how many tests passed, failed and skipped, as JSON")
	flag.Func("from", "report of an earlier run, in place of a run; repeat it for the parts of a run", func(path string) error {
		o.from = append(o.from, path)
		return nil
	})
	flag.IntVar(&o.procs, "procs", 6, "how many tests run at a time")
	flag.Parse()
	programs.Main("storage", func(ctx context.Context, root string) (int, error) { return run(ctx, root, o) })
}

// run returns the exit code.
func run(ctx context.Context, root string, o options) (int, error) {
	if o.from != nil {
		return report(o, o.from...)
	}
	box := sandbox.In(root, "e2e-storage")
	build := func() error {
		if _, err := o.version.BuildNodes(ctx, root, os.Stdout); err != nil {
			return err
		}
		if err := o.version.BuildSuite(ctx, root, os.Stdout); err != nil || o.quick {
			return err
		}
		return programs.BuildCrictl(ctx, root, os.Stdout)
	}
	if code, outside, err := box.Enter(build); outside || err != nil {
		return code, err
	}
	all, err := suiteImages(ctx, o, root)
	if err != nil {
		return 1, err
	}
	nodes := lab.ManyNodes(4) // two of them in the first zone
	for i := range nodes {
		nodes[i].Type = "ecs.g7se.large" // its NVMe takes disks that several nodes have
	}
	l, err := lab.Start(ctx, lab.Options{
		Root: root, Programs: o.version.BuiltNodes(root), StateDir: box.Dir, RealNodes: true, Nodes: nodes, Images: all,
		Say: func(step string, took time.Duration) { fmt.Printf("  %5.1f s  %s\n", took.Seconds(), step) },
	})
	if err != nil {
		return 1, err
	}
	code := 1
	if err = installCrictl(ctx, root, l, o); err == nil {
		code, err = runSuite(ctx, root, l, o)
	}
	return code, errors.Join(err, l.Stop())
}

// installCrictl gives every node crictl in a directory of its PATH that Debian leaves empty. The quick tests don't need it.
func installCrictl(ctx context.Context, root string, l *lab.Lab, o options) error {
	if o.quick {
		return nil
	}
	for _, n := range l.RealNodes {
		if _, err := n.Exec(ctx, "mount", "--bind", programs.BuiltCrictl(root), "/usr/local/sbin"); err != nil {
			return err
		}
	}
	return nil
}

// suiteImages are what the tests' Pods are made of, under the tags that the tests' source has: busybox in place of nginx, too, for
// no more than a shell is asked of it.
func suiteImages(ctx context.Context, o options, root string) ([]images.Image, error) {
	source, err := o.version.SuiteImages(ctx, root)
	if err != nil {
		return nil, err
	}
	tags := readSuiteImages(source)
	for _, name := range []string{"Agnhost", "BusyBox", "Nginx", "NginxNew", "Pause"} {
		if tags[name] == "" {
			return nil, fmt.Errorf("the tests of Kubernetes %s name no image %s", o.version, name)
		}
	}
	shell, err := images.Shell()
	if err != nil {
		return nil, err
	}
	busybox := shell
	busybox.Names, busybox.Command = []string{tags["BusyBox"], tags["Nginx"], tags["NginxNew"]}, []string{"sh"}
	agnhost := shell
	agnhost.Names = []string{tags["Agnhost"]}
	agnhost.Files = append(agnhost.Files[:len(agnhost.Files):len(agnhost.Files)], images.File{Path: "agnhost", From: o.version.BuiltSuite(root).Agnhost})
	agnhost.Entrypoint, agnhost.Command = []string{"/agnhost"}, []string{"pause"}
	glibc, err := withOwn(shell, "/bin/dd", "/bin/sh") // busybox' dd can't go past the cache, and its shell runs no other
	if err != nil {
		return nil, err
	}
	// Tests before 1.36 have another image with a glibc.
	glibc.Names, glibc.Command = []string{cmp.Or(tags["GlibcDnsTesting"], tags["JessieDnsutils"])}, []string{"sh"}
	pause := images.Pause(o.version.BuiltNodes(root).NodeInit, tags["Pause"])
	return []images.Image{busybox, agnhost, glibc, pause}, nil
}

// withOwn returns the image with programs of this machine in place of busybox', and with the libraries that they need.
func withOwn(image images.Image, names ...string) (images.Image, error) {
	said, err := exec.Command("ldd", names...).Output()
	if err != nil {
		return image, fmt.Errorf("find the libraries of %v: %w", names, err)
	}
	files := slices.Clone(names)
	for word := range strings.FieldsSeq(string(said)) {
		if strings.HasPrefix(word, "/") && !strings.HasSuffix(word, ":") && !slices.Contains(files, word) {
			files = append(files, word)
		}
	}
	image.Files = slices.DeleteFunc(slices.Clone(image.Files), func(f images.File) bool { return slices.Contains(files, "/"+f.Path) })
	for _, file := range files {
		image.Files = append(image.Files, images.File{Path: file[1:], From: file})
	}
	return image, nil
}

// runSuite runs the tests and reports on them.
func runSuite(ctx context.Context, root string, l *lab.Lab, o options) (int, error) {
	at := filepath.Join(l.Dir, "manifests")
	if err := os.CopyFS(at, manifests); err != nil {
		return 1, err
	}
	if !o.version.AtLeast(programs.FirstWithAttributesClasses) {
		if err := fitFirstVersion(at); err != nil {
			return 1, err
		}
	}
	if o.version.AtLeast(firstWithGroups) {
		if _, err := l.RunKubectl(ctx, "", "", "apply", "-f", filepath.Join(at, "smallest.yaml")); err != nil {
			return 1, err
		}
	}
	log, err := os.Create(filepath.Join(l.Dir, "suite.log"))
	if err != nil {
		return 1, err
	}
	defer log.Close()
	bastion, env, err := openBastion(l)
	if err != nil {
		return 1, err
	}
	defer bastion.close()
	suite := o.version.BuiltSuite(root)
	var failed error
	var reports []string
	for _, part := range o.parts() {
		path := filepath.Join(root, ".build", part.report) // stays until the next run
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return 1, err
		}
		reports = append(reports, path)
		args := append(o.flags(), "--label-filter="+part.labels, "--procs="+fmt.Sprint(part.procs), "--timeout=3h", "--no-color",
			"--output-dir="+filepath.Dir(path), "--json-report="+filepath.Base(path),
			suite.Tests, "--", "-kubeconfig="+l.Kubeconfig, "-kubectl-path="+l.Kubectl, "-provider=local",
			"-repo-root="+at, "-dump-logs-on-failure=false", "-allowed-not-ready-nodes=0")
		for _, driver := range drivers {
			args = append(args, "-storage.testdriver="+filepath.Join(at, driver))
		}
		cmd := exec.CommandContext(ctx, suite.Ginkgo, args...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = l.Dir, log, log
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it writes its report then
		cmd.WaitDelay = 3 * time.Minute                                       // for the tests clear up
		cmd.Env = append(append(os.Environ(), "HOME="+l.Dir), env...)
		failed = errors.Join(failed, cmd.Run())
		if ctx.Err() != nil {
			break
		}
	}
	code, err := report(o, reports...)
	switch {
	case err != nil:
		err = fmt.Errorf("%w; the tests said %w, their log is %s", err, failed, log.Name())
	case failed != nil:
		code = 1
	}
	return code, err
}

// attributesClass is how the manifests of the driver name its class.
const attributesClass = "VolumeAttributesClass:\n  FromFile: faster.yaml\n"

// fitFirstVersion changes the manifests of a directory for the tests of 1.33: they know no VolumeAttributesClass, and where later
// ones claim a volume that several nodes write to, they claim it with the access modes that the manifest gives.
func fitFirstVersion(dir string) error {
	for _, driver := range drivers {
		path := filepath.Join(dir, driver)
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fitted := strings.Replace(string(text), attributesClass, "", 1)
		if driver == sharedDriver {
			fitted = strings.Replace(fitted, "DriverInfo:\n", "DriverInfo:\n  RequiredAccessModes: [ReadWriteMany]\n", 1)
		}
		if err := os.WriteFile(path, []byte(fitted), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// report tells what became of the tests, and writes it to a page.
func report(o options, paths ...string) (int, error) {
	results, err := readReports(paths...)
	if err != nil {
		return 1, err
	}
	fmt.Println(results.summary())
	for _, r := range results.in("failed") {
		fmt.Printf("failed: %s\n    %s\n", r.name, strings.ReplaceAll(r.reason, "\n", "\n    "))
	}
	unseen := results.unseen(o.expected())
	for _, tests := range unseen {
		fmt.Printf("none passed of: %s\n", tests)
	}
	if o.counts != "" {
		if err := os.WriteFile(o.counts, results.counts(len(unseen)), 0o644); err != nil {
			return 1, err
		}
	}
	if o.write != "" {
		if err := os.WriteFile(o.write, results.page(o.which(), o.version), 0o644); err != nil {
			return 1, err
		}
	}
	if len(results.in("failed")) > 0 || len(unseen) > 0 {
		return 1, nil
	}
	return 0, nil
}
