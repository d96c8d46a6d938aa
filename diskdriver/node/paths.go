package node

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"

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

// below says whether a path is inside of a directory.
func below(path, dir string) bool {
	return strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// owner is what a path below the kubelet's root directory says of its volume; empty is what it doesn't say.
type owner struct {
	staged bool   // it is below where the kubelet has block volumes staged
	pod    string // UID of the Pod that it is for
	volume string // name of the PersistentVolume
}

// The kubelet's layout below its root directory (Kubernetes, pkg/volume/csi).
var (
	podDir      = regexp.MustCompile(`^pods/(?P<pod>[^/]+)(?:/volumes/kubernetes\.io~csi/(?P<volume>[^/]+)/mount)?(?:/|$)`)
	inPod       = regexp.MustCompile(`^pods/[^/]+/`)
	publishedAt = regexp.MustCompile(`^plugins/kubernetes\.io/csi/volumeDevices/publish/(?P<volume>[^/]+)/(?P<pod>[^/]+)$`)
	kubeletBind = regexp.MustCompile(`^plugins/kubernetes\.io/csi/volumeDevices/(?P<volume>[^/]+)/dev/(?P<pod>[^/]+)$`)
	stagedBelow = regexp.MustCompile(`^plugins/kubernetes\.io/csi/volumeDevices/staging/(?P<volume>[^/]+)(?:/|$)`)
)

// isForBlock says whether a path is where the kubelet has the block volume of one PersistentVolume published for one Pod, and nothing else.
func (k kubeletDir) isForBlock(path string) bool {
	rest, err := filepath.Rel(string(k), path)
	return err == nil && publishedAt.MatchString(rest)
}

// isInPod says whether a path is in the directory that the kubelet has for one Pod, where it has file systems mounted and binds no device.
func (k kubeletDir) isInPod(path string) bool {
	rest, err := filepath.Rel(string(k), path)
	return err == nil && inPod.MatchString(rest)
}

// owner reads a path.
func (k kubeletDir) owner(path string) (o owner) {
	rest, _ := filepath.Rel(string(k), path)
	for _, form := range []*regexp.Regexp{podDir, publishedAt, stagedBelow, kubeletBind} {
		found := form.FindStringSubmatch(rest)
		if found == nil {
			continue
		}
		if i := form.SubexpIndex("pod"); i >= 0 {
			o.pod = found[i]
		}
		o.staged, o.volume = form == stagedBelow, found[form.SubexpIndex("volume")]
		return o
	}
	return o
}
