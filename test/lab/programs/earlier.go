package programs

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Earlier is topodisk as another commit has it.
type Earlier struct {
	Programs string // directory of disk-driver and disk-provisioner
	Manifest string // its deploy/topodisk.yaml
}

// earlierPackages are the programs of an earlier commit that run beside today's.
var earlierPackages = []string{
	"github.com/topodisk/topodisk/cmd/disk-driver",
	"github.com/topodisk/topodisk/cmd/disk-provisioner",
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
	into := filepath.Join(root, ".build", "earlier", commit)
	earlier := Earlier{Programs: into, Manifest: filepath.Join(into, "topodisk.yaml")}
	if err := CheckCommit(root, commit); err != nil {
		return earlier, err
	}
	unlock, err := lockBuild(filepath.Join(root, ".build"), out)
	if err != nil {
		return earlier, err
	}
	defer unlock()
	version, err := goVersion(ctx, root)
	if err != nil {
		return earlier, err
	}
	built := makeStamp(version, earlierPackages, []byte(commit), nil)
	if built.matches(into, earlierPackages) {
		return earlier, nil
	}
	if err := os.MkdirAll(into, 0o755); err != nil {
		return earlier, err
	}
	if err := built.clear(into); err != nil {
		return earlier, err
	}
	if err := buildCommit(ctx, root, commit, earlier, out); err != nil {
		return earlier, fmt.Errorf("build topodisk of commit %s: %w", commit, err)
	}
	return earlier, built.write(into)
}

// buildCommit builds in a temporary checkout, which git need not know of.
func buildCommit(ctx context.Context, root, commit string, to Earlier, out *os.File) (err error) {
	checkout, err := os.MkdirTemp(filepath.Join(root, ".build"), "checkout-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(checkout)) }()
	if err := extract(ctx, root, commit, checkout); err != nil {
		return err
	}
	build := goBuild{dir: checkout, into: to.Programs, packages: earlierPackages, title: "topodisk of commit " + commit, ldflags: "-s -w", out: out}
	if err := build.run(ctx); err != nil {
		return err
	}
	manifest, err := os.ReadFile(filepath.Join(checkout, "deploy", "topodisk.yaml"))
	if err != nil {
		return err
	}
	return os.WriteFile(to.Manifest, manifest, 0o644)
}

// extract writes a commit's files into a directory.
func extract(ctx context.Context, root, commit, into string) error {
	archive := exec.CommandContext(ctx, "git", "-C", root, "archive", "--format=tar", commit)
	files, err := archive.StdoutPipe()
	if err != nil {
		return err
	}
	var says strings.Builder
	archive.Stderr = &says
	if err := archive.Start(); err != nil {
		return err
	}
	err = untar(files, into)
	if err != nil {
		_ = archive.Process.Kill() // it waits for a reader
	}
	if ended := archive.Wait(); err == nil && ended != nil {
		err = fmt.Errorf("git archive %s: %w: %s", commit, ended, says.String())
	}
	return err
}

// untar writes directories and files; what a build doesn't need, such as links, is left out.
func untar(archive io.Reader, into string) error {
	root, err := os.OpenRoot(into)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // nothing is written through it
	for files := tar.NewReader(archive); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch header.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(header.Name, 0o755)
		case tar.TypeReg:
			err = writeFile(root, header.Name, files)
		}
		if err != nil {
			return err
		}
	}
}

func writeFile(root *os.Root, name string, content io.Reader) error {
	f, err := root.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}
