package programs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Earlier is topodisk as another commit has it.
type Earlier struct {
	Programs string // directory of disk-driver and disk-provisioner
	Manifest string // its deploy/topodisk.yaml
}

// CheckCommit returns an error that says what to do if the clone doesn't have a commit.
func CheckCommit(root, commit string) error {
	said, err := exec.Command("git", "-C", root, "cat-file", "-e", commit+"^{commit}").CombinedOutput()
	if err != nil {
		return fmt.Errorf("git does not have commit %s in %s: a shallow clone gets it by `git fetch --unshallow`: %w: %s", commit, root, err, strings.TrimSpace(string(said)))
	}
	return nil
}

// BuildEarlier builds the controller's programs of an earlier commit from the clone's history: once for each commit and
// each version of Go (half a minute on two cores).
func BuildEarlier(ctx context.Context, root, commit string, out *os.File) (Earlier, error) {
	earlier := BuiltEarlier(root, commit)
	into := earlier.Programs
	return earlier, buildCommit(ctx, root, commit, into, controllerPackages, out, func(checkout string) error {
		build := goBuild{dir: checkout, into: into, packages: controllerPackages, title: "topodisk of commit " + commit, ldflags: "-s -w", out: out}
		if err := build.compile(ctx); err != nil {
			return err
		}
		manifest, err := os.ReadFile(filepath.Join(checkout, "deploy", "topodisk.yaml"))
		if err != nil {
			return err
		}
		return os.WriteFile(earlier.Manifest, manifest, 0o644)
	})
}

// BuiltEarlier returns where BuildEarlier puts what it builds.
func BuiltEarlier(root, commit string) Earlier {
	into := filepath.Join(root, ".build", "earlier", commit)
	return Earlier{Programs: into, Manifest: filepath.Join(into, "topodisk.yaml")}
}

// EarlierInstallation is what another commit is installed from.
type EarlierInstallation struct {
	Image string // OCI archive
	Chart string // package
}

// BuildEarlierInstallation makes the release of an earlier commit, for this machine's architecture, with that commit's own tool, and keeps
// its image and its chart: once for each commit and each version of Go (two minutes on two cores). It needs Debian 12 and binutils.
func BuildEarlierInstallation(ctx context.Context, root, commit, version string, out *os.File) (EarlierInstallation, error) {
	into := filepath.Join(root, ".build", "earlier-release", commit)
	image, chart := "topodisk-"+version+".oci.tar", "topodisk-"+version+".tgz"
	earlier := EarlierInstallation{Image: filepath.Join(into, image), Chart: filepath.Join(into, chart)}
	return earlier, buildCommit(ctx, root, commit, into, []string{image, chart}, out, func(checkout string) error {
		tool, dist := filepath.Join(checkout, ".build", "release-tool"), filepath.Join(checkout, ".build", "dist")
		err := RunAll(ctx, checkout, out,
			[]string{"go", "-C", "test/release", "build", "-o", tool, "."},
			[]string{tool, "make", "-trial", "-version", version, "-architectures", runtime.GOARCH, "-out", dist})
		if err != nil {
			return fmt.Errorf("make release %s of commit %s: %w", version, commit, err)
		}
		return errors.Join(os.Rename(filepath.Join(dist, image), earlier.Image), os.Rename(filepath.Join(dist, chart), earlier.Chart))
	})
}

// buildCommit has build make these files of a temporary checkout of the commit, which git need not know of, unless they are there.
func buildCommit(ctx context.Context, root, commit, into string, files []string, out *os.File, build func(checkout string) error) (err error) {
	if err := CheckCommit(root, commit); err != nil {
		return err
	}
	unlock, err := lockBuild(into, out)
	if err != nil {
		return err
	}
	defer unlock()
	version, err := goVersion(ctx, root)
	if err != nil {
		return err
	}
	built := makeStamp(version, files, []byte(commit), nil)
	if built.matches(into, files) {
		return nil
	}
	if err := built.clear(into); err != nil {
		return err
	}
	checkout, err := os.MkdirTemp(filepath.Join(root, ".build"), "checkout-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(checkout)) }()
	if err := extract(ctx, root, commit, checkout); err != nil {
		return err
	}
	if err := build(checkout); err != nil {
		return err
	}
	return built.write(into)
}

// extract writes a commit's files into a directory. The checkout's index, in which git notes what is in the working tree, stays as it is.
func extract(ctx context.Context, root, commit, into string) error {
	git := exec.CommandContext(ctx, "git", "--git-dir="+filepath.Join(root, ".git"), "--work-tree=.", "checkout", commit, "--", ".")
	git.Dir, git.Env = into, append(os.Environ(), "GIT_INDEX_FILE="+into+".index")
	said, err := git.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("check out commit %s: %w: %s", commit, err, said)
	}
	return errors.Join(err, os.RemoveAll(into+".index"))
}
