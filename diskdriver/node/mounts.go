package node

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	mount "k8s.io/mount-utils"
)

// mounts is the mount table of the node.
type mounts struct {
	mounter mount.Interface
	kubelet string
}

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

// at returns the mount that is seen at a path, if one begins just there.
func (m mounts) at(path string) (mount.MountInfo, bool, error) {
	all, err := m.table()
	if err != nil {
		return mount.MountInfo{}, false, err
	}
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].MountPoint == path {
			return all[i], true, nil
		}
	}
	return mount.MountInfo{}, false, nil
}

// numberOf returns the number of the device whose file system is mounted.
func numberOf(m mount.MountInfo) uint64 { return unix.Mkdev(uint32(m.Major), uint32(m.Minor)) }

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
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove what a volume was published at: %w", err)
	}
	return nil
}
