package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// kubeletDir is the kubelet's root directory, without symbolic links. Of the paths of a request only those below it are touched.
type kubeletDir string

// resolveExisting returns the real path of a directory or file that the kubelet has
// made.
func (k kubeletDir) resolveExisting(field, path string) (string, error) {
	real, err := k.resolve(field, path)
	if err != nil {
		return "", err
	}
	if _, err := os.Lstat(real); errors.Is(err, os.ErrNotExist) {
		return "", disk.Errorf(disk.Invalid, "%s %q does not exist; the kubelet makes it", field, path)
	}
	return real, nil
}

// resolve returns the real path of what may exist or not; the directory it is in
// does.
func (k kubeletDir) resolve(field, path string) (string, error) {
	switch {
	case path == "":
		return "", disk.Errorf(disk.Invalid, "%s is missing", field)
	case !filepath.IsAbs(path) || filepath.Clean(path) != strings.TrimSuffix(path, "/"):
		return "", disk.Errorf(disk.Invalid, "%s %q is not allowed: allowed is a clean absolute path", field, path)
	}
	path = filepath.Clean(path)
	parent, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return "", disk.Errorf(disk.Invalid, "%s %q: the directory it is in: %w", field, path, err)
	}
	real := filepath.Join(parent, filepath.Base(path))
	if !below(real, string(k)) {
		return "", disk.Errorf(disk.Invalid, "%s %q is not allowed: allowed is a path below the kubelet's root directory %s", field, path, k)
	}
	if info, err := os.Lstat(real); err == nil && info.Mode().Type() == os.ModeSymlink {
		return "", disk.Errorf(disk.Invalid, "%s %q is a symbolic link; allowed is a path that leads nowhere else", field, path)
	}
	return real, nil
}

// resolveIfPresent is resolve, but empty if there can be nothing at a path, for the
// directory it is in doesn't exist.
func (k kubeletDir) resolveIfPresent(field, path string) (string, error) {
	real, err := k.resolve(field, path)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return real, err
}

// hostError is the error of writing to the host's own file system.
func hostError(doing string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EROFS) || errors.Is(err, unix.EDQUOT) {
		return disk.Errorf(disk.Blocked, "%s: %w: this node's own file system takes no more; give it space, or make it writable", doing, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// below says whether a path is inside of a directory.
func below(path, dir string) bool {
	return strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
