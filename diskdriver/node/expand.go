package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	mount "k8s.io/mount-utils"
	utilexec "k8s.io/utils/exec"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// NodeExpandVolume lets a file system fill the device it is on, after the node
// has seen the device at its new size (CSI spec, NodeExpandVolume). A block
// volume needs no more than that. capacity_bytes is the size of the device.
func (s *Server) NodeExpandVolume(ctx context.Context, req *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	at, err := s.volumeAt("volume_path", req.GetVolumePath(), req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	whole, part, err := s.devices.byNumber(at.number)
	if err != nil {
		return nil, err
	}
	size, err := whole.awaitSize(ctx, req.GetCapacityRange().GetRequiredBytes())
	if err == nil && !at.block {
		err = s.expand(ctx, disk.ID(req.GetVolumeId()), at.path, whole, part)
	}
	if err != nil {
		return nil, err
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: size}, nil
}

// volumePath is where a volume is published or staged.
type volumePath struct {
	path   string // without symbolic links
	number uint64 // of the device
	block  bool
	mount  mount.MountInfo // of the file system
}

// volumeAt looks at the path of a published or staged volume. That there is none is
// NotFound: what is below the path belongs to the host.
func (s *Server) volumeAt(field, path, volume string) (volumePath, error) {
	if volume == "" {
		return volumePath{}, disk.Errorf(disk.Invalid, "volume_id is missing")
	}
	nothing := &disk.Error{Disk: disk.ID(volume), Kind: disk.NotFound, Err: fmt.Errorf("%s %q: no volume is there", field, path)}
	if _, err := os.Lstat(path); path != "" && errors.Is(err, os.ErrNotExist) {
		return volumePath{}, nothing
	}
	real, err := s.paths.resolve(field, path)
	if err != nil {
		return volumePath{}, err
	}
	if number, is := blockAt(real); is {
		return volumePath{path: real, number: number, block: true}, nil
	}
	m, mounted, err := s.mounts.at(real)
	if err == nil && !mounted {
		err = nothing
	}
	return volumePath{path: real, number: numberOf(m), mount: m}, err
}

// byNumber returns the disk with a device number, and its partition if the
// number is that of one.
func (ds devices) byNumber(number uint64) (whole device, part *device, err error) {
	link := filepath.Join(ds.sys, "dev/block", fmt.Sprintf("%d:%d", unix.Major(number), unix.Minor(number)))
	dir, err := filepath.EvalSymlinks(link)
	if err != nil {
		return device{}, nil, fmt.Errorf("look for the device that is mounted: %w", err)
	}
	d, err := open(filepath.Join(ds.dev, filepath.Base(dir)))
	if err != nil {
		return device{}, nil, err
	}
	if parent := filepath.Base(filepath.Dir(dir)); parent != "block" {
		whole, err = open(filepath.Join(ds.dev, parent))
		return whole, &d, err
	}
	return d, nil, nil
}

// awaitSize waits until the node sees the device at a size, and returns its size.
func (d device) awaitSize(ctx context.Context, required int64) (size int64, err error) {
	err = poll(ctx, func() (bool, error) {
		if size, err = sizeOf(d.path); err != nil {
			return true, fmt.Errorf("read the size of the device: %w", err)
		}
		if size >= required {
			return true, nil
		}
		return false, disk.Errorf(disk.Pending, "%s has %d bytes; asked for are %d, which the node doesn't see yet", d.path, size, required)
	})
	return size, err
}

// expand grows what is on the device: first the partition, then the file
// system. What is mounted read-only is left as it is.
func (s *Server) expand(ctx context.Context, volume disk.ID, at string, whole device, part *device) error {
	d := whole
	if part != nil {
		if err := growPartition(ctx, whole, *part); err != nil {
			return err
		}
		d = *part
	}
	if readOnly, err := d.isReadOnly(); err != nil || readOnly {
		return err
	}
	return s.growFileSystem(volume, d, at)
}

// growFileSystem lets a mounted file system fill its device.
func (s *Server) growFileSystem(volume disk.ID, d device, at string) error {
	if _, err := mount.NewResizeFs(utilexec.New()).Resize(d.path, at); err != nil {
		return &disk.Error{Disk: volume, Kind: disk.Unexpected, Err: fmt.Errorf("grow the file system: %w", err)}
	}
	return nil
}

// isFilled says whether the file system on a device is as large as the device, by
// its superblock.
func (d device) isFilled() (bool, error) {
	head, err := d.read(0, superblockSize)
	if err != nil {
		return false, err
	}
	super := parseSuperblock(head)
	return super.size+super.block > d.size, nil
}

// growOffline lets an ext file system fill its device while it isn't mounted.
// Not every kernel lets the node do it while it is.
func growOffline(ctx context.Context, u volumeUse, d device, fsType string) error {
	if fsType == "xfs" {
		return disk.Errorf(disk.Unexpected, "xfs can't grow while it isn't mounted")
	}
	// It was unmounted just now, so its journal is empty, and what e2fsck finds without writing is all there is to find.
	for _, command := range [][]string{{"e2fsck", "-f", "-n"}, {"resize2fs", "-f"}} {
		out, err := exec.CommandContext(context.WithoutCancel(ctx), command[0], append(command[1:], d.path)...).CombinedOutput()
		if err != nil {
			return u.errorf(disk.Unexpected, "%s %s: %w: %s", strings.Join(command, " "), d.path, err, oneLine(out))
		}
	}
	return nil
}

// growPartition lets a partition fill its disk, and tells the kernel.
func growPartition(ctx context.Context, whole, part device) error {
	number := strings.TrimLeft(strings.TrimPrefix(part.name(), whole.name()), "p")
	ctx = context.WithoutCancel(ctx)
	sfdisk := exec.CommandContext(ctx, "sfdisk", "--no-reread", "--no-tell-kernel", "-N", number, whole.path)
	sfdisk.Stdin = strings.NewReader(", +\n")
	out, err := sfdisk.CombinedOutput()
	if err == nil {
		out, err = exec.CommandContext(ctx, "partx", "--update", "--nr", number, whole.path).CombinedOutput()
	}
	if err != nil {
		return disk.Errorf(disk.Unexpected, "grow partition %s of %s: %w: %s", number, whole.path, err, oneLine(out))
	}
	return nil
}
