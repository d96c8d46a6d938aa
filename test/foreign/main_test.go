//go:build foreign

package foreign

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/topodisk/topodisk/test/lab/programs"
	"github.com/topodisk/topodisk/test/lab/sandbox"
	"github.com/topodisk/topodisk/test/labtest"
)

// root is the checkout, dir where all is that a run leaves, and built where the clients are.
var root, dir, built string

// interrupted is done when the tests are to end. Programs are started with it, so that they end, too.
var interrupted context.Context

func TestMain(m *testing.M) { labtest.Main(m, runAll) }

// runAll runs the tests in a sandbox if this is root, who can have one, for a node's devices and mounts. The others run anywhere.
func runAll(m *testing.M) (code int, err error) {
	var stop context.CancelFunc
	interrupted, stop = signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if root, err = programs.FindRoot(); err != nil {
		return 1, err
	}
	built = filepath.Join(root, ".build", "foreign")
	box := sandbox.In(root, "test-foreign")
	dir = box.Dir
	build := func() error { return build(interrupted) }
	if os.Geteuid() == 0 && has("ip", "losetup") {
		if code, outside, err := box.Enter(build); outside || err != nil {
			return code, err
		}
		return m.Run(), nil
	}
	if err := build(); err != nil {
		return 1, err
	}
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return 1, err
	}
	if code = m.Run(); code == 0 {
		err = os.RemoveAll(dir)
	}
	if code != 0 {
		fmt.Fprintf(os.Stderr, "what the programs say is in %s\n", dir)
	}
	return code, err
}

// has says whether all of the programs are in PATH.
func has(names ...string) bool {
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			return false
		}
	}
	return true
}

// build builds the clients, and the control plane that a node plugin needs. It needs the network unless all is there already.
func build(ctx context.Context) error {
	if _, err := os.Stat(shipped("disk-driver")); err != nil {
		return fmt.Errorf("run make build: %w", err)
	}
	if _, err := programs.Default.Build(ctx, root, os.Stderr); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{buildSanity, buildGoSDK, installNPM} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// buildSanity builds csi-sanity of the version that go.mod has, with the dependencies that its own module pins.
func buildSanity(ctx context.Context) error {
	const module = "github.com/kubernetes-csi/csi-test/v5"
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f={{.Version}}", module)
	list.Dir = root
	version, err := list.Output()
	if err != nil {
		return fmt.Errorf("find the version of %s: %w", module, err)
	}
	install := exec.CommandContext(ctx, "go", "install", module+"/cmd/csi-sanity@"+strings.TrimSpace(string(version)))
	install.Env = append(os.Environ(), "GOBIN="+built)
	return run(install)
}

func buildGoSDK(ctx context.Context) error {
	return errors.Join(
		run(exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(built, "gosdk"), "./gosdk")),
		run(exec.CommandContext(ctx, "go", "-C", "gosdk2", "build", "-o", filepath.Join(built, "gosdk2"), ".")))
}

// installNPM installs the packages that the lock file pins, if npm is there; the tests say so if it isn't. npm installs
// beside the lock file, so that is copied away from the checkout, and the scripts with it, to find the packages.
func installNPM(ctx context.Context) error {
	if !has("node", "npm") {
		return nil
	}
	into := filepath.Join(built, "npm")
	lock, err := os.ReadFile(filepath.Join("npm", "package-lock.json"))
	if err != nil {
		return err
	}
	last, err := os.ReadFile(filepath.Join(into, "package-lock.json"))
	current := err == nil && string(last) == string(lock)
	if _, err := os.Stat(filepath.Join(into, installed)); err != nil {
		current = false
	}
	if !current {
		if err := os.RemoveAll(into); err != nil {
			return err
		}
	}
	files, err := filepath.Glob("npm/*")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(into, 0o755); err != nil {
		return err
	}
	for _, file := range append(files, "npm/.npmrc") {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(into, filepath.Base(file)), text, 0o644); err != nil {
			return err
		}
	}
	if current {
		return nil
	}
	ci := exec.CommandContext(ctx, "npm", "ci")
	ci.Dir = into
	if err := run(ci); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(into, installed), nil, 0o600)
}

// installed is a file that is there once npm has installed all.
const installed = "node_modules/.topodisk-installed"

// run runs a command; its error has what that says.
func run(cmd *exec.Cmd) error {
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, said)
	}
	return nil
}

// shipped is the path of a program that `make build` has built.
func shipped(name string) string { return filepath.Join(root, "bin", name) }
