//go:build e2einstall

package install

import (
	"context"
	"os"
	"path/filepath"
	"runtime"

	"github.com/topodisk/topodisk/test/lab/programs"
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
	return programs.RunAll(ctx, root, os.Stderr,
		[]string{"go", "-C", "test/release", "build", "-o", built("release"), "."},
		[]string{"go", "-C", "test/release", "build", "-o", built("minisign"), "aead.dev/minisign/cmd/minisign"},
		[]string{built("minisign"), "-G", "-W", "-p", public, "-s", key},
		[]string{built("release"), "make", "-trial", "-version", releaseVersion, "-architectures", runtime.GOARCH, "-key", key, "-out", dist("")},
		[]string{built("minisign"), "-V", "-p", public, "-m", dist("SHA256SUMS")},
		[]string{"sh", "-c", "cd " + dist("") + " && sha256sum --check --quiet SHA256SUMS"},
		[]string{"rm", "-rf", charts},
		[]string{"mkdir", charts},
		[]string{"tar", "-xzf", dist("topodisk-" + releaseVersion + ".tgz"), "-C", charts})
}
