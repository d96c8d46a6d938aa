//go:build e2einstall

package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/images"
	"github.com/topodisk/topodisk/test/lab/programs"
	"github.com/topodisk/topodisk/test/lab/sandbox"
	"github.com/topodisk/topodisk/test/labtest"
)

// cluster is the lab that the tests share, root the checkout, and helm the program.
var (
	cluster    *lab.Lab
	root, helm string
)

// imageName is what the documentation calls the image.
const imageName = "registry.example.com/storage/topodisk"

func TestMain(m *testing.M) { labtest.Main(m, runAll) }

func runAll(m *testing.M) (code int, err error) {
	ctx := context.Background()
	if root, err = programs.FindRoot(); err != nil {
		return 1, err
	}
	helm = programs.BuiltHelm(root)
	box := sandbox.In(root, "e2e-install")
	if earlier, err = programs.BuildEarlierInstallation(ctx, root, earlierCommit, earlierVersion, os.Stderr); err != nil {
		return 1, err
	}
	if code, outside, err := box.Enter(func() error { return build(ctx) }); outside || err != nil {
		return code, err
	}
	all, err := nodeImages(ctx)
	if err != nil {
		return 1, err
	}
	cluster, err = lab.Start(ctx, lab.Options{
		Root: root, Programs: programs.Default.BuiltNodes(root), StateDir: box.Dir, RealNodes: true, Nodes: lab.ManyNodes(3), InPods: true, Audit: true,
		Images: all, Archives: []string{dist("topodisk-" + releaseVersion + ".oci.tar"), earlier.Image},
		Say: func(step string, took time.Duration) { fmt.Fprintf(os.Stderr, "%5.1f s  %s\n", took.Seconds(), step) },
	})
	if err != nil {
		return 1, err
	}
	if err := makeDesk(); err != nil {
		return 1, errors.Join(err, cluster.Stop())
	}
	return m.Run(), cluster.Stop()
}

// build makes the release and builds all else.
func build(ctx context.Context) error {
	begin := time.Now()
	if err := makeDist(ctx); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%5.1f s  a release for %s\n", time.Since(begin).Seconds(), runtime.GOARCH)
	if _, err := programs.Default.BuildNodes(ctx, root, os.Stderr); err != nil {
		return err
	}
	if _, err := programs.BuildHelm(ctx, root, os.Stderr); err != nil {
		return err
	}
	if _, err := programs.BuildUpstream(ctx, root, os.Stderr); err != nil {
		return err
	}
	ours := exec.CommandContext(ctx, "go", "build", "-o", built(""), "./cmd/kubectl-topodisk", "./test/install/fakeplugin")
	ours.Dir, ours.Env, ours.Stderr = root, append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
	return ours.Run()
}

// built returns where a program is that build has built.
func built(name string) string { return filepath.Join(root, ".build", "run", name) }

// nodeImages are those of the sidecars under the names that the chart has for them, and the one of the examples.
func nodeImages(ctx context.Context) ([]images.Image, error) {
	shell, err := images.Shell()
	if err != nil {
		return nil, err
	}
	idle := shell
	idle.Names, idle.Entrypoint = idleImages(), slices.Concat(shell.Command, []string{"waits"}) // a container's arguments come behind
	shell.Names = []string{"docker.io/library/busybox:1.37"}
	list := append(componentImages(), shell, idle)
	text, err := programs.RenderChart(ctx, root, chartDir(), labValues("http://unused"), settings...)
	if err != nil {
		return nil, err
	}
	sidecars, err := images.Sidecars(text, imageName, programs.Default.BuiltNodes(root).Sidecars)
	return append(list, sidecars...), err
}

// settings are what the documentation tells helm.
var settings = []string{"--set=region=cn-hangzhou", "--set=image.repository=" + imageName, "--set=credentials.existingSecret=" + secretName}

const (
	namespace  = corev1.NamespaceDefault
	home       = "kube-system" // where topodisk is installed
	secretName = "topodisk-credentials"
	className  = "topodisk-essd"
)
