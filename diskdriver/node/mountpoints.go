package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	mount "k8s.io/mount-utils"
)

// mountPoint is where a device is seen below the kubelet's directory.
type mountPoint struct {
	path   string
	device bool   // the device itself is bound there, as of a block volume; if not, its file system is mounted
	staged bool   // it is below where the kubelet has block volumes staged
	pod    string // UID of the Pod that it is for; empty if the path doesn't say
	volume string // name of the PersistentVolume; empty if the path doesn't say
}

// The kubelet's layout below its root directory (Kubernetes, pkg/volume/csi).
var (
	podDir      = regexp.MustCompile(`^pods/(?P<pod>[^/]+)(?:/volumes/kubernetes\.io~csi/(?P<volume>[^/]+)/mount)?(?:/|$)`)
	publishedAt = regexp.MustCompile(`^plugins/kubernetes\.io/csi/volumeDevices/publish/(?P<volume>[^/]+)/(?P<pod>[^/]+)$`)
	kubeletBind = regexp.MustCompile(`^plugins/kubernetes\.io/csi/volumeDevices/(?P<volume>[^/]+)/dev/(?P<pod>[^/]+)$`)
	stagedBelow = regexp.MustCompile(`^plugins/kubernetes\.io/csi/volumeDevices/staging/(?P<volume>[^/]+)(?:/|$)`)
)

// String is the path, for a message.
func (p mountPoint) String() string { return p.path }

// parseMountPoint reads a path below the kubelet's real root directory.
func parseMountPoint(root, path string) mountPoint {
	p := mountPoint{path: path}
	rest, err := filepath.Rel(root, path)
	if err != nil {
		return p
	}
	for _, form := range []*regexp.Regexp{podDir, publishedAt, stagedBelow, kubeletBind} {
		found := form.FindStringSubmatch(rest)
		if found == nil {
			continue
		}
		if i := form.SubexpIndex("pod"); i >= 0 {
			p.pod = found[i]
		}
		p.staged, p.volume = form == stagedBelow, found[form.SubexpIndex("volume")]
		return p
	}
	return p
}

// uses returns where a device is in use below the kubelet's directory: its file
// system is mounted, or the device is bound for a Pod that is on the node. A bind
// for a Pod that has gone, or at a staging path, is not counted: the kernel knows a
// bound device by its number alone, which another disk may have by now. Nor is what
// belongs to the volume itself: its staging path, and a device that is bound below it.
func (m mounts) uses(number uint64, staging string) ([]mountPoint, error) {
	all, err := m.table()
	if err != nil {
		return nil, err
	}
	root, err := m.root()
	if err != nil {
		return nil, err
	}
	var points []mountPoint
	for _, one := range all {
		if !below(one.MountPoint, root) {
			continue
		}
		p := parseMountPoint(root, one.MountPoint)
		if mayBeDevice(one) {
			block, is := blockAt(one.MountPoint)
			p.device = is && block == number
		}
		if !p.device && numberOf(one) != number {
			continue
		}
		stale, err := p.isStale(root)
		if err != nil {
			return nil, err
		}
		if own := p.path == staging || p.device && below(p.path, staging); !stale && !own {
			points = append(points, p)
		}
	}
	return points, nil
}

// remoteFileSystems are prefixes of the types of file systems whose server may hang.
var remoteFileSystems = []string{"nfs", "cifs", "smb", "ceph", "fuse", "9p", "lustre", "afs"}

// mayBeDevice says whether a mount may be a device that is bound. The root of a file
// system is none, and a remote file system is not asked: a stat on one whose server
// hangs never returns.
func mayBeDevice(m mount.MountInfo) bool {
	return m.Root != "/" && !slices.ContainsFunc(remoteFileSystems, func(begin string) bool { return strings.HasPrefix(m.FsType, begin) })
}

// root is the kubelet's real root directory.
func (m mounts) root() (string, error) {
	root, err := filepath.EvalSymlinks(m.kubelet)
	if err != nil {
		return "", fmt.Errorf("the kubelet's root directory: %w", err)
	}
	return root, nil
}

// isStale says whether a device is bound at a staging path, or for a Pod that is no
// longer on the node.
func (p mountPoint) isStale(root string) (bool, error) {
	switch {
	case p.device && p.staged:
		return true, nil
	case !p.device, p.pod == "":
		return false, nil
	}
	_, err := os.Lstat(filepath.Join(root, "pods", p.pod))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, fmt.Errorf("look whether Pod %s is on the node: %w", p.pod, err)
	}
	return err != nil, nil
}
