package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
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

// links are the names that udev gives to the disk with a serial number, by way
// of virtio and of NVMe.
var links = []string{"virtio-%s", "nvme-Alibaba_Cloud_Elastic_Block_Storage_%s"}

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
	err := poll(ctx, func() (found bool, err error) {
		d, found, err = ds.findOnce(serial)
		if err != nil || found {
			return true, err
		}
		return false, disk.Errorf(disk.Pending, "no device has serial number %s yet, neither below %s nor in %s", serial, filepath.Join(ds.dev, "disk/by-id"), filepath.Join(ds.sys, "block"))
	})
	return d, err
}

// poll looks until it is done or shortly before the deadline, and returns the error
// of its last look.
func poll(ctx context.Context, look func() (done bool, err error)) error {
	return pollFor(ctx, findTimeout, look)
}

// pollFor is poll for some time at most.
func pollFor(ctx context.Context, longest time.Duration, look func() (done bool, err error)) error {
	limit := time.Now().Add(longest)
	if deadline, ok := ctx.Deadline(); ok && deadline.Add(-margin).Before(limit) {
		limit = deadline.Add(-margin)
	}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		if done, err := look(); done || !time.Now().Before(limit) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// hold keeps a device open, so that the kernel gives its name and its number to no
// other disk, and makes sure that it is still the one with the serial number.
func (ds devices) hold(serial string, d device) (io.Closer, error) {
	f, err := os.Open(d.path)
	if err != nil {
		return nil, fmt.Errorf("open the device: %w", err)
	}
	if err := ds.confirm(serial, d); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// confirm makes sure that a device is still the one with a serial number.
func (ds devices) confirm(serial string, d device) error {
	now, found, err := ds.findOnce(serial)
	if err == nil && (!found || now.number != d.number) {
		return disk.Errorf(disk.Pending, "%s is not the disk with serial number %s any more; it is looked for again", d.path, serial)
	}
	return err
}

// findOnce looks once. A link that leads to a disk with another serial number is
// one that udev has yet to take away.
func (ds devices) findOnce(serial string) (device, bool, error) {
	nodes, err := ds.nodes(serial)
	if err != nil || len(nodes) == 0 {
		return device{}, false, err
	}
	if len(nodes) > 1 {
		return device{}, false, disk.Errorf(disk.Blocked, "devices %s all have serial number %s, so the right one can't be told; detach the one that isn't the disk's", strings.Join(nodes, ", "), serial)
	}
	d, err := open(nodes[0])
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENOMEDIUM) || err == nil && d.size == 0 {
		return device{}, false, nil // it comes or goes just now
	}
	return d, err == nil, err
}

// nodes returns the device nodes of the disks with a serial number.
func (ds devices) nodes(serial string) ([]string, error) {
	var nodes []string
	for _, link := range links {
		target, err := filepath.EvalSymlinks(filepath.Join(ds.dev, "disk/by-id", fmt.Sprintf(link, serial)))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, fmt.Errorf("follow the link of serial number %s: %w", serial, err)
		}
		if shown := ds.serial(filepath.Base(target)); (shown == "" || shown == serial) && !slices.Contains(nodes, target) {
			nodes = append(nodes, target)
		}
	}
	names, err := ds.disks()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		node := filepath.Join(ds.dev, name)
		if ds.serial(name) == serial && !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
	}
	return nodes, nil
}

// disks returns the kernel's names of all disks, without partitions and without
// the hidden ones that stand for a path to an NVMe disk.
func (ds devices) disks() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(ds.sys, "block"))
	if err != nil {
		return nil, fmt.Errorf("list the disks of the node: %w", err)
	}
	var names []string
	for _, entry := range entries {
		if ds.attribute(entry.Name(), "hidden") != "1" {
			names = append(names, entry.Name())
		}
	}
	return names, nil
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
func (ds devices) serials(kubelet string) ([]string, error) {
	found := map[string]string{} // by kernel name
	for _, link := range links {
		prefix := strings.TrimSuffix(link, "%s")
		paths, err := filepath.Glob(filepath.Join(ds.dev, "disk/by-id", prefix+"*"))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			serial := strings.TrimPrefix(filepath.Base(path), prefix)
			if target, err := filepath.EvalSymlinks(path); err == nil && !partOf.MatchString(serial) {
				found[filepath.Base(target)] = serial
			}
		}
	}
	names, err := ds.disks()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if serial := ds.serial(name); serial != "" {
			found[name] = serial
		}
	}
	maps.DeleteFunc(found, func(name, _ string) bool { return !ds.isCloudDisk(name, kubelet) })
	return slices.Sorted(maps.Values(found)), nil
}

// partOf is how udev marks the link to a partition.
var partOf = regexp.MustCompile(`-part\d+$`)

// isCloudDisk says whether a disk is neither part of the instance, such as a local
// SSD, nor the host's own.
func (ds devices) isCloudDisk(name, kubelet string) bool {
	if model := ds.attribute(name, "device/model"); model != "" && model != cloudModel {
		return false
	}
	d, err := open(filepath.Join(ds.dev, name))
	if err != nil {
		return false
	}
	parts, err := ds.partitions(d)
	return err == nil && ds.checkHost(d, parts, kubelet) == nil
}

// open returns the device of a device node.
func open(path string) (device, error) {
	number, is := blockAt(path)
	if !is {
		return device{}, fmt.Errorf("%s is no block device: %w", path, fs.ErrNotExist)
	}
	size, err := sizeOf(path)
	if err != nil {
		return device{}, err
	}
	return device{path: path, number: number, size: size}, nil
}

// isGone says whether a device that was open once is there no more.
func (d device) isGone() bool {
	now, err := open(d.path)
	return err != nil || now.number != d.number || now.size == 0
}

// sizeOf returns the size of a block device in bytes, by seeking to its end.
func sizeOf(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	return f.Seek(0, 2)
}

// partitions returns the partitions of a disk, in their order.
func (ds devices) partitions(d device) ([]device, error) {
	entries, err := os.ReadDir(filepath.Join(ds.sys, "block", d.name()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the partitions of %s: %w", d.path, err)
	}
	var all []device
	for _, entry := range entries {
		if _, err := os.Stat(filepath.Join(ds.sys, "block", d.name(), entry.Name(), "partition")); err != nil {
			continue
		}
		p, err := open(d.path + strings.TrimPrefix(entry.Name(), d.name()))
		if err != nil {
			return nil, fmt.Errorf("open a partition of %s: %w", d.path, err)
		}
		all = append(all, p)
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
func (ds devices) checkHost(d device, parts []device, kubelet string) error {
	for _, dir := range []string{"/", kubelet} {
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
		return fmt.Errorf("open the device: %w", err)
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
	f, err := os.Open(d.path)
	if err != nil {
		return fmt.Errorf("open the device: %w", err)
	}
	defer func() { _ = f.Close() }()
	value := 0
	if readOnly {
		value = 1
	}
	if is, err := unix.IoctlGetInt(int(f.Fd()), unix.BLKROGET); err == nil && is == value {
		return nil
	}
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.BLKROSET, value); err != nil {
		return fmt.Errorf("set %s read-only %v: %w", d.path, readOnly, err)
	}
	return nil
}

// isReadOnly says whether the kernel refuses writes to a device.
func (d device) isReadOnly() (bool, error) {
	f, err := os.Open(d.path)
	if err != nil {
		return false, fmt.Errorf("open the device: %w", err)
	}
	defer func() { _ = f.Close() }()
	is, err := unix.IoctlGetInt(int(f.Fd()), unix.BLKROGET)
	return is != 0, err
}
