//go:build e2einstall

package install

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// releaseVersion is the version that the tests make a release of, install and upgrade to, as docs/upgrade.md does.
const releaseVersion = "0.2.0"

// dist is where the release lies.
func dist(name string) string { return filepath.Join(root, ".build", "e2e-dist", name) }

// chartDir is what the release's chart package unpacks to.
func chartDir() string { return filepath.Join(root, ".build", "e2e-charts", "topodisk") }

// makeDist makes a release of the tree as it is, for this machine's architecture, signs it with a key that is made for it, and
// unpacks its chart.
func makeDist(ctx context.Context) error {
	scratch, err := os.MkdirTemp("", "topodisk-e2e-install-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	key, public := filepath.Join(scratch, "secret.key"), filepath.Join(scratch, "topodisk.pub")
	charts := filepath.Dir(chartDir())
	for _, command := range [][]string{
		{"go", "-C", "test/release", "build", "-o", built("release"), "."},
		{"go", "-C", "test/release", "build", "-o", built("minisign"), "aead.dev/minisign/cmd/minisign"},
		{built("minisign"), "-G", "-W", "-p", public, "-s", key},
		{built("release"), "make", "-trial", "-version", releaseVersion, "-architectures", runtime.GOARCH, "-key", key, "-out", dist("")},
		{built("minisign"), "-V", "-p", public, "-m", dist("SHA256SUMS")},
		{"sh", "-c", "cd " + dist("") + " && sha256sum --check --quiet SHA256SUMS"},
		{"rm", "-rf", charts},
		{"mkdir", charts},
		{"tar", "-xzf", dist("topodisk-" + releaseVersion + ".tgz"), "-C", charts},
	} {
		run := exec.CommandContext(ctx, command[0], command[1:]...)
		run.Dir, run.Stdout, run.Stderr = root, os.Stderr, os.Stderr
		if err := run.Run(); err != nil {
			return fmt.Errorf("%q: %w", command, err)
		}
	}
	return nil
}
