package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	mount "k8s.io/mount-utils"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

const (
	// pollInterval is how often the node looks for a device that is late.
	pollInterval = 200 * time.Millisecond
	// findTimeout is how long it looks before it says so: the kubelet asks again.
	findTimeout = 20 * time.Second
	// margin is the time that is left of a deadline for saying so.
	margin = time.Second
)

// links are how the names begin that udev gives to a disk, by way of virtio and of NVMe; its serial number follows.
var links = []string{"virtio-", "nvme-Alibaba_Cloud_Elastic_Block_Storage_"}

// partOf is how udev ends the name of a partition.
var partOf = regexp.MustCompile(`-part\d+$`)

// cloudModel is the model of a cloud disk that is attached by way of NVMe. One
// that is attached by way of virtio shows none.
const cloudModel = "Alibaba Cloud Elastic Block Storage"

// devices is the block devices of the node.
type devices struct {
	dev, sys string
}

// device is a block device as it was found.
type device struct {
	path   string // such as /dev/vdb
	number uint64
	size   int64 // bytes
}

// name is the kernel's name of the device, such as vdb.
func (d device) name() string { return filepath.Base(d.path) }

// find returns the disk with a serial number. A device may be late: it is
// looked for until shortly before the deadline.
func (ds devices) find(ctx context.Context, serial string) (device, error) {
	var d device
	err := poll(ctx, findTimeout, func() (found bool, err error) {
		d, found, err = ds.findOnce(serial)
		if err != nil || found {
			return true, err
		}
		return false, disk.Errorf(disk.Pending, "no device has serial number %s yet, neither below %s nor in %s", serial, filepath.Join(ds.dev, "disk/by-id"), filepath.Join(ds.sys, "block"))
	})
	return d, err
}

// poll looks until it is done, for some time at most or until shortly before the deadline, and returns the error of its last look.
func poll(ctx context.Context, longest time.Duration, look func() (done bool, err error)) error {
	limit := time.Now().Add(longest)
	if deadline, ok := ctx.Deadline(); ok && deadline.Add(-margin).Before(limit) {
		limit = deadline.Add(-margin)
	}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		done, err := look()
		if done || !time.Now().Before(limit) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// confirm makes sure that a device is still the one with a serial number.
func (ds devices) confirm(serial string, d device) error {
	now, found, err := ds.findOnce(serial)
	if err == nil && (!found || now.number != d.number) {
		return disk.Errorf(disk.Pending, "%s is not the disk with serial number %s any more; it is looked for again", d.path, serial)
	}
	return err
}

// findOnce looks once.
func (ds devices) findOnce(serial string) (device, bool, error) {
	found, err := ds.withSerial(serial)
	if err != nil || len(found) == 0 {
		return device{}, false, err
	}
	if len(found) > 1 {
		return device{}, false, disk.Errorf(disk.Blocked, "devices %s all have serial number %s, so the right one can't be told; detach the one that isn't the disk's", strings.Join(found, ", "), serial)
	}
	d, err := open(found[0])
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENOMEDIUM) || err == nil && d.size == 0 {
		return device{}, false, nil // it comes or goes just now
	}
	return d, err == nil, err
}

// withSerial returns the paths of the disks with a serial number.
func (ds devices) withSerial(serial string) (paths []string, err error) {
	all, err := ds.identities()
	for _, i := range all {
		if i.serial == serial {
			paths = append(paths, filepath.Join(ds.dev, i.name))
		}
	}
	return paths, err
}

// identity is a disk's name to the kernel, such as vdb, and a serial number of it.
type identity struct{ name, serial string }

// identities returns the disks of the node with the serial numbers that the kernel shows, and those that udev's links say of disks of
// which the kernel shows none: another link is one that udev has yet to remove. Without the hidden disks that stand for a path to an
// NVMe disk.
func (ds devices) identities() (all []identity, err error) {
	entries, err := os.ReadDir(filepath.Join(ds.sys, "block"))
	if err != nil {
		return nil, fmt.Errorf("list the disks of the node: %w", err)
	}
	for _, entry := range entries {
		if serial := ds.serial(entry.Name()); serial != "" && ds.attribute(entry.Name(), "hidden") != "1" {
			all = append(all, identity{entry.Name(), serial})
		}
	}
	for _, prefix := range links {
		paths, err := filepath.Glob(filepath.Join(ds.dev, "disk/by-id", prefix+"*"))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			target, err := filepath.EvalSymlinks(path)
			i := identity{filepath.Base(target), strings.TrimPrefix(filepath.Base(path), prefix)}
			if err == nil && !partOf.MatchString(path) && ds.serial(i.name) == "" && !slices.Contains(all, i) {
				all = append(all, i)
			}
		}
	}
	return all, nil
}

// attribute returns what the kernel shows of a disk; empty if it shows nothing.
func (ds devices) attribute(name, file string) string {
	content, err := os.ReadFile(filepath.Join(ds.sys, "block", name, file))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(content))
}

// serial returns the serial number that the kernel shows of a disk; empty if
// it shows none.
func (ds devices) serial(name string) string {
	for _, file := range []string{"serial", "device/serial"} {
		if value := ds.attribute(name, file); value != "" {
			return value
		}
	}
	return ""
}

// serials returns the serial numbers of the cloud disks that the node sees, but
// that of the host's own disk.
func (s *Server) serials() (serials []string, err error) {
	all, err := s.devices.identities()
	for _, i := range all {
		if s.isCloudDisk(i.name) {
			serials = append(serials, i.serial)
		}
	}
	slices.Sort(serials)
	return slices.Compact(serials), err
}

// isCloudDisk says whether a disk is neither part of the instance, such as a local
// SSD, nor the host's own.
func (s *Server) isCloudDisk(name string) bool {
	if model := s.devices.attribute(name, "device/model"); model != "" && model != cloudModel {
		return false
	}
	d, err := open(filepath.Join(s.devices.dev, name))
	if err != nil {
		return false
	}
	parts, err := s.devices.partitions(d)
	return err == nil && s.checkHost(d, parts) == nil
}

// open returns the device of a device node. Its size is where it ends.
func open(path string) (device, error) {
	number, is := blockAt(path)
	if !is {
		return device{}, fmt.Errorf("%s is no block device: %w", path, fs.ErrNotExist)
	}
	f, err := os.Open(path)
	if err != nil {
		return device{}, err
	}
	defer func() { _ = f.Close() }()
	size, err := f.Seek(0, io.SeekEnd)
	return device{path: path, number: number, size: size}, err
}

// byNumber returns the disk with a device number, and the device itself: the disk, or a partition of it.
func (ds devices) byNumber(number uint64) (whole, d device, err error) {
	dir, err := filepath.EvalSymlinks(ds.shown(number))
	if err == nil {
		d, err = open(filepath.Join(ds.dev, filepath.Base(dir)))
	}
	whole = d
	if _, failed := os.Lstat(filepath.Join(dir, "partition")); err == nil && failed == nil { // the kernel shows it of a partition, below its disk
		whole, err = open(filepath.Join(ds.dev, filepath.Base(filepath.Dir(dir))))
	}
	if err != nil {
		return whole, d, fmt.Errorf("look for the device with number %d:%d: %w", unix.Major(number), unix.Minor(number), err)
	}
	return whole, d, nil
}

// shown is where the kernel shows the device with a number.
func (ds devices) shown(number uint64) string {
	return filepath.Join(ds.sys, "dev/block", fmt.Sprintf("%d:%d", unix.Major(number), unix.Minor(number)))
}

// isGone says whether the node has no device with a number any more. An error that says nothing of the device doesn't count.
func (ds devices) isGone(number uint64) bool {
	_, d, err := ds.byNumber(number)
	if err == nil {
		return d.size == 0
	}
	return slices.ContainsFunc([]error{fs.ErrNotExist, unix.ENXIO, unix.ENODEV}, func(gone error) bool { return errors.Is(err, gone) })
}

// isOther says whether a device number is that of a disk with a serial number that isn't a volume's.
func (ds devices) isOther(number uint64, volume disk.ID) bool {
	whole, _, err := ds.byNumber(number)
	all, failed := ds.identities()
	if err != nil || failed != nil {
		return false
	}
	all = slices.DeleteFunc(all, func(i identity) bool { return i.name != whole.name() })
	return len(all) > 0 && !slices.Contains(all, identity{whole.name(), serialOf(volume)})
}

// partitions returns the partitions of a disk, in their order.
func (ds devices) partitions(d device) (all []device, err error) {
	shown, err := filepath.Glob(filepath.Join(ds.sys, "block", d.name(), "*", "partition"))
	for _, path := range shown {
		part, failed := open(filepath.Join(ds.dev, filepath.Base(filepath.Dir(path))))
		all, err = append(all, part), errors.Join(err, failed)
	}
	if err != nil {
		return nil, fmt.Errorf("look for the partitions of %s: %w", d.path, err)
	}
	return all, nil
}

// checkSize refuses a device that can't be the disk. A disk only ever grows,
// and by whole GiB.
func (d device) checkSize(attached int64) error {
	if d.size < attached || d.size%disk.BytesPerGiB != 0 && attached > 0 {
		return disk.Errorf(disk.Blocked, "%s has %d bytes, and the disk had %d when it was attached: this is not the disk, or the node has yet to see its size", d.path, d.size, attached)
	}
	return nil
}

// checkHost refuses the host's own disk.
func (s *Server) checkHost(d device, parts []device) error {
	for _, dir := range []string{"/", string(s.kubelet)} {
		var stat unix.Stat_t
		if err := unix.Stat(dir, &stat); err != nil {
			return fmt.Errorf("look at %s: %w", dir, err)
		}
		for _, part := range append([]device{d}, parts...) {
			if stat.Dev == part.number {
				return disk.Errorf(disk.InUse, "%s is the disk that %s of this node is on; it can't be a volume", d.path, dir)
			}
		}
	}
	return nil
}

// checkUnused refuses a device that somebody holds: a mount in any namespace, a
// volume manager, another formatting. The kernel gives it to one at a time.
func (s *Server) checkUnused(d device) error {
	f, err := os.OpenFile(d.path, os.O_RDONLY|unix.O_EXCL, 0)
	switch {
	case errors.Is(err, unix.EBUSY):
		return disk.Errorf(disk.InUse, "%s is in use on this node by something other than the volume: %s", d.path, s.devices.holders(d))
	case err != nil:
		return err
	}
	return f.Close()
}

// holders says who holds a device, as far as the process sees it.
func (ds devices) holders(d device) string {
	var all []string
	names, _ := filepath.Glob(filepath.Join(ds.sys, "block", d.name(), "holders", "*"))
	parts, _ := filepath.Glob(filepath.Join(ds.sys, "block", d.name(), d.name()+"*", "holders", "*"))
	for _, name := range append(names, parts...) {
		all = append(all, "device "+filepath.Base(name))
	}
	tables, _ := filepath.Glob("/proc/[0-9]*/mountinfo")
	for _, table := range tables {
		mounts, err := mount.ParseMountInfo(table)
		if err != nil {
			continue // the process has ended
		}
		for _, m := range mounts {
			if at := fmt.Sprintf("a mount at %s", unescape(m.MountPoint)); numberOf(m) == d.number && !slices.Contains(all, at) {
				all = append(all, at)
			}
		}
	}
	if swaps, _ := os.ReadFile("/proc/swaps"); strings.Contains(string(swaps), d.path+" ") {
		all = append(all, "swap")
	}
	if len(all) == 0 {
		return "a mount that this process doesn't see, or a format or check that goes on"
	}
	return strings.Join(all, ", ")
}

// setReadOnly makes the kernel refuse writes to a device, or take them.
func (d device) setReadOnly(readOnly bool) error {
	value := 0
	if readOnly {
		value = 1
	}
	f, err := os.Open(d.path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.BLKROSET, value); err != nil {
		return fmt.Errorf("set %s read-only %v: %w", d.path, readOnly, err)
	}
	return nil
}

// isReadOnly says whether the kernel refuses writes to a device.
func (d device) isReadOnly() (bool, error) {
	f, err := os.Open(d.path)
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	is, err := unix.IoctlGetInt(int(f.Fd()), unix.BLKROGET)
	return is != 0, err
}

// sectors returns the physical and the logical size of a device's sectors, in bytes.
func (d device) sectors() (physical, logical int, err error) {
	f, err := os.Open(d.path)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = f.Close() }()
	if physical, err = unix.IoctlGetInt(int(f.Fd()), unix.BLKPBSZGET); err == nil {
		logical, err = unix.IoctlGetInt(int(f.Fd()), unix.BLKSSZGET)
	}
	return physical, logical, err
}
