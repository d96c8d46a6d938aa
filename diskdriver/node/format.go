package node

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/google/uuid"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// formats is how each file system is made by default: nothing of what is there is needed, and root needs no share of a volume.
var formats = map[string][]string{
	"ext3": {"mkfs.ext3", "-F", "-m0"},
	"ext4": {"mkfs.ext4", "-F", "-m0"},
	"xfs":  {"mkfs.xfs", "-f"},
}

// uuidOption is how mkfs is told the UUID of the file system.
func uuidOption(fsType string, id uuid.UUID) []string {
	if fsType == "xfs" {
		return []string{"-m", "uuid=" + id.String()}
	}
	return []string{"-U", id.String()}
}

// mkfs is the call that makes the file system of a mark at a path. Nothing is discarded, for that would take the mark off the disk.
func (s *Server) mkfs(u volumeUse, m formatMark, path string) ([]string, error) {
	options, err := u.mkfsArgs(m.fsType, s.allowed)
	return slices.Concat(formats[m.fsType], uuidOption(m.fsType, m.uuid), options, []string{path}), err
}

// rehearse makes the file system of a mark in a file as large as the device, and returns the file: what a format that was cut short
// has left on a disk is part of that. Without a mark there is none.
func (s *Server) rehearse(ctx context.Context, u volumeUse, d device, m formatMark) (*os.File, error) {
	if formats[m.fsType] == nil {
		return nil, nil
	}
	const logOfXFS = 2 << 30
	need := min(d.size/1024+64<<20, logOfXFS+1<<30) // measured of disks from 20 GiB to 32 TiB, with as much to spare
	if err := checkRoom(u, s.plugin, need, "a format of the disk was cut short"); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(s.plugin, "format-")
	if err != nil {
		return nil, hostError("make a file to see what a format writes", err)
	}
	args, err := s.mkfs(u, m, f.Name())
	if err = errors.Join(err, f.Truncate(d.size)); err == nil {
		if out, failed := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); failed != nil {
			err = u.errorf(disk.Unexpected, "%v: %w: %s", args, failed, oneLine(out))
		}
	}
	if err = errors.Join(err, os.Remove(f.Name())); err != nil { // it lasts until it is closed
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// format makes the file system, and proves that it can be mounted. Until then its mark is on the disk, so that a format that is cut
// short is done again. It isn't cut short when its caller gives up: a large disk would never be done.
func (s *Server) format(ctx context.Context, u volumeUse, d device, staging string) error {
	fsType := u.newFSType()
	mark := formatMark{serial: u.serial, fsType: fsType, uuid: uuid.New()}
	args, err := s.mkfs(u, mark, d.path)
	if err != nil {
		return err
	}
	klog.InfoS("Making a file system", "volume", u.volume, "device", d.path, "fsType", fsType, "args", args)
	if err := d.writeMark(mark); err != nil {
		return err
	}
	if err := s.records.note(u.serial); err != nil {
		return errors.Join(err, d.eraseMark())
	}
	out, err := exec.CommandContext(context.WithoutCancel(ctx), args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return u.errorf(disk.Unexpected, "%v: %w: %s", args, err, oneLine(out))
	}
	// Mounted for reading it takes no write that the mark on it would put in doubt.
	if err := s.mounts.mounter.Mount(d.path, staging, fsType, []string{"ro"}); err != nil {
		return u.errorf(disk.Unexpected, "mount the file system that was just made: %w", err)
	}
	if err := s.mounts.unmount(staging); err != nil {
		return u.maybeMountedError(err, nil)
	}
	if err := d.eraseMark(); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(s.plugin, "formatting", u.serial)); err != nil && !errors.Is(err, os.ErrNotExist) {
		klog.ErrorS(err, "What an earlier version noted of a format is left", "volume", u.volume)
	}
	return nil
}
