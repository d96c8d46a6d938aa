package need

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"github.com/topodisk/topodisk/test/lab/sandbox"
)

// What the kernel allows is tried, once a process: root alone may not be enough, as in a container.
var (
	// Mounts are file systems mounted by the test.
	Mounts = Thing{"mounts", sync.OnceValue(func() error { return byRoot(tryMount()) })}
	// LoopDevices are loop devices, and device nodes for them in the directory for temporary files.
	LoopDevices = Thing{"loop devices", sync.OnceValue(func() error { return byRoot(tryLoop()) })}
	// Namespaces are processes in namespaces of their own: those of processes, mounts, networks, host names and IPC.
	Namespaces = Thing{"namespaces", sync.OnceValue(func() error { return byRoot(tryNamespaces()) })}
	// FUSE is a file system that the test answers for.
	FUSE = Thing{"FUSE", sync.OnceValue(func() error { return byRoot(tryFUSE()) })}
	// Cgroups are cgroups made by the test.
	Cgroups = Thing{"cgroups", sync.OnceValue(func() error { return byRoot(tryCgroup()) })}
)

// FileSystem is a file system that the kernel can mount and for which there is mkfs.
func FileSystem(name string) Thing {
	mkfs := Program("mkfs." + name)
	return Thing{mkfs.name, func() error {
		if err := mkfs.check(); err != nil {
			return err
		}
		// The kernel looks for the file system, and for its module, before it looks at the device.
		if err := syscall.Mount(os.DevNull, os.DevNull, name, 0, ""); errors.Is(err, syscall.ENODEV) {
			return fmt.Errorf("the kernel has no %s: %w", name, err)
		}
		return nil
	}}
}

// byRoot says that root would do, unless this is root.
func byRoot(err error) error {
	if err != nil && os.Geteuid() != 0 {
		return lack{"root", err}
	}
	return err
}

func tryMount() error {
	dir, err := os.MkdirTemp("", "need")
	if err != nil {
		return err
	}
	defer os.Remove(dir) //nolint:errcheck // it is for temporary files
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount a tmpfs: %w", err)
	}
	return syscall.Unmount(dir, 0)
}

func tryFUSE() error {
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

func tryLoop() (err error) {
	if os.Geteuid() != 0 {
		return errors.New("only root can set up loop devices")
	}
	if _, err := exec.LookPath("losetup"); err != nil {
		return nil // Program says so
	}
	dir, err := os.MkdirTemp("", "need")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is for temporary files
	file, node := filepath.Join(dir, "file"), filepath.Join(dir, "node")
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o600); err != nil {
		return err
	}
	said, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
	device := strings.TrimSpace(string(said))
	if err != nil {
		return fmt.Errorf("losetup: %w: %s", err, device)
	}
	defer func() { err = errors.Join(err, exec.Command("losetup", "--detach", device).Run()) }()
	info, err := os.Stat(device)
	if err != nil {
		return err
	}
	if err := syscall.Mknod(node, syscall.S_IFBLK|0o600, int(info.Sys().(*syscall.Stat_t).Rdev)); err != nil {
		return fmt.Errorf("make a device node in %s: %w", dir, err)
	}
	if _, err := os.Stat(filepath.Join("/sys/block", filepath.Base(device))); err != nil {
		return err
	}
	return makeWritable(node)
}

// makeWritable does what not everybody may who can set up a loop device.
func makeWritable(node string) error {
	f, err := os.OpenFile(node, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("open a device node; TMPDIR is to be a directory on a file system that is not mounted with nodev: %w", err)
	}
	defer f.Close()
	const setReadOnly = 0x125d // BLKROSET
	readOnly := int32(0)
	if _, _, failed := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), setReadOnly, uintptr(unsafe.Pointer(&readOnly))); failed != 0 {
		return fmt.Errorf("make a loop device writable: %w", failed)
	}
	return nil
}

func tryNamespaces() error {
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: sandbox.Namespaces}
	return cmd.Run()
}

// tryCgroup makes a cgroup in every hierarchy: in the one of version 2, or in each of version 1.
func tryCgroup() error {
	roots, err := sandbox.CgroupRoots()
	if err == nil && len(roots) == 0 {
		err = errors.New("no cgroups in " + sandbox.CgroupMounts)
	}
	if err != nil {
		return err
	}
	for _, root := range roots {
		dir, err := os.MkdirTemp(root, "need")
		if err != nil {
			return err
		}
		if err := os.Remove(dir); err != nil {
			return err
		}
	}
	return nil
}
