package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	mount "k8s.io/mount-utils"
)

// mounts is the mount table of the node.
type mounts struct {
	mounter mount.Interface
	kubelet kubeletDir
}

// mountPoint is a mount, and what it is to volumes.
type mountPoint struct {
	mount.MountInfo
	number uint64 // of the device that is bound there, or whose file system is mounted
	device bool   // the device itself is bound there, as of a block volume; if not, its file system is mounted
}

// String is the path, for a message.
func (m mountPoint) String() string { return m.MountPoint }

// isReadOnly says whether a file system is mounted for reading only.
func (m mountPoint) isReadOnly() bool { return slices.Contains(m.MountOptions, "ro") }

// table reads the mount table, in the order in which mounts were made.
func (mounts) table() ([]mount.MountInfo, error) {
	all, err := mount.ParseMountInfo("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	for i := range all {
		all[i].MountPoint = unescape(all[i].MountPoint)
	}
	return all, nil
}

// unescape takes back what the kernel does to spaces and the like in a path.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace

// at returns the mount that is seen at a path, if one begins just there. The kernel says which: the table has mounts, too, that another
// one hides, be it at the path or at a directory above it.
func (m mounts) at(path string) (mountPoint, bool, error) {
	id, err := mountID(path)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return mountPoint{}, false, nil
	}
	if err != nil {
		return mountPoint{}, false, fmt.Errorf("look what is mounted at %s: %w", path, err)
	}
	all, err := m.table()
	if err != nil {
		return mountPoint{}, false, err
	}
	for _, one := range all {
		if one.ID == id && one.MountPoint == path {
			return m.mountPoint(one), true, nil
		}
	}
	return mountPoint{}, false, nil
}

// mountID returns the ID of the mount that a path is on (Linux, Documentation/filesystems/proc.rst, fdinfo). Nothing is read of what is
// mounted there.
func mountID(path string) (id int, err error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(fd) }()
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "mnt_id: %d", &id); err == nil {
			return id, nil
		}
	}
	return 0, errors.New("the kernel doesn't say which mount it is on")
}

// numberOf returns the number of the device whose file system is mounted.
func numberOf(m mount.MountInfo) uint64 { return unix.Mkdev(uint32(m.Major), uint32(m.Minor)) }

// remoteFileSystems are prefixes of the types of file systems whose server may hang.
var remoteFileSystems = []string{"nfs", "cifs", "smb", "ceph", "fuse", "9p", "lustre", "afs"}

// mountPoint looks at a mount. The root of a file system is no device that is bound, nor is what a Pod's own directory has: a subPath may
// be any file of a volume, and root of a container makes device nodes of any number. A remote file system is not asked: a stat on one whose
// server hangs never returns.
func (m mounts) mountPoint(one mount.MountInfo) mountPoint {
	isRemote := slices.ContainsFunc(remoteFileSystems, func(begin string) bool { return strings.HasPrefix(one.FsType, begin) })
	if one.Root != "/" && !isRemote && !m.kubelet.isInPod(one.MountPoint) {
		if number, is := blockAt(one.MountPoint); is {
			return mountPoint{MountInfo: one, number: number, device: true}
		}
	}
	return mountPoint{MountInfo: one, number: numberOf(one)}
}

// blockAt returns the number of the block device that a path is, if it is one.
func blockAt(path string) (uint64, bool) {
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFBLK {
		return 0, false
	}
	return stat.Rdev, true
}

// unmount takes away whatever is mounted at a path, however often. Nothing
// there is success.
func (m mounts) unmount(path string) error {
	for {
		_, mounted, err := m.at(path)
		if err != nil || !mounted {
			return err
		}
		if err := m.mounter.Unmount(path); err != nil {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
}

// unmountAndRemove unmounts a path and removes it. Nothing there is success.
func (m mounts) unmountAndRemove(path string) error {
	if err := m.unmount(path); err != nil {
		return err
	}
	return remove(path)
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
	var uses []mountPoint
	for _, one := range all {
		if !below(one.MountPoint, string(m.kubelet)) {
			continue
		}
		use := m.mountPoint(one)
		if use.number != number || use.MountPoint == staging || use.device && below(use.MountPoint, staging) {
			continue
		}
		stale, err := m.isStale(use)
		if err != nil {
			return nil, err
		}
		if !stale {
			uses = append(uses, use)
		}
	}
	return uses, nil
}

// isStale says whether a device is bound at a staging path, or for a Pod that is no
// longer on the node.
func (m mounts) isStale(use mountPoint) (bool, error) {
	owner := m.kubelet.owner(use.MountPoint)
	if !use.device || owner.pod == "" {
		return use.device && owner.staged, nil
	}
	_, err := os.Lstat(filepath.Join(string(m.kubelet), "pods", owner.pod))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, fmt.Errorf("look whether Pod %s is on the node: %w", owner.pod, err)
	}
	return err != nil, nil
}
