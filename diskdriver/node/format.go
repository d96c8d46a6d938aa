package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// formats is how each file system is made by default: whatever is there is
// known to be blank, and root needs no share of a volume.
var formats = map[string][]string{
	"ext3": {"mkfs.ext3", "-F", "-m0"},
	"ext4": {"mkfs.ext4", "-F", "-m0"},
	"xfs":  {"mkfs.xfs", "-f"},
}

// formatMarkers are files that say which disks a format has begun on. They outlive the
// process, so that a format that was cut short isn't taken for data. A marker is of one
// attachment: once a disk has left the node, another one may have used it.
type formatMarkers struct {
	dir string
}

func (m formatMarkers) path(u volumeUse) string { return filepath.Join(m.dir, u.serial) }

// text is what the marker of a volume's attachment says.
func (m formatMarkers) text(u volumeUse) string { return string(u.volume) + "\n" + u.attached + "\n" }

// set says that a format begins; it is on the node's disk when it returns.
func (m formatMarkers) set(u volumeUse) error {
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		return hostError("remember that a format begins", err)
	}
	f, err := os.Create(m.path(u))
	if err == nil {
		_, err = f.WriteString(m.text(u))
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err == nil {
		err = syncDir(m.dir)
	}
	if err != nil {
		return hostError("remember that a format begins", err)
	}
	return nil
}

// syncDir makes sure that what was made in a directory is on the disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// clear says that the format has ended.
func (m formatMarkers) clear(serial string) error {
	if err := os.Remove(filepath.Join(m.dir, serial)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("forget a format that has ended: %w", err)
	}
	return nil
}

// isSet says whether a format of this disk has begun and not ended since it was attached. Version 0.1 noted the volume alone:
// such a marker is of this attachment if it is younger.
func (m formatMarkers) isSet(u volumeUse) bool {
	content, err := os.ReadFile(m.path(u))
	if err != nil || string(content) == m.text(u) {
		return err == nil
	}
	info, err := os.Stat(m.path(u))
	attached, ok := time.Parse(time.RFC3339, u.attached)
	return string(content) == string(u.volume)+"\n" && err == nil && ok == nil && info.ModTime().After(attached)
}

// format makes the file system, and returns which. It isn't cut short when its
// caller gives up: a large disk would never be done.
func (s *Server) format(ctx context.Context, u volumeUse, d device) (fsType string, err error) {
	fsType = cmp.Or(u.fsType, defaultFSType)
	if err := s.marks.set(u); err != nil {
		return "", err
	}
	args := slices.Concat(formats[fsType][1:], u.mkfsArgs(fsType), []string{d.path})
	klog.InfoS("Making a file system", "volume", u.volume, "device", d.path, "fsType", fsType, "args", args)
	out, err := exec.CommandContext(context.WithoutCancel(ctx), formats[fsType][0], args...).CombinedOutput()
	if err != nil {
		return "", u.errorf(disk.Unexpected, "%s %v: %w: %s", formats[fsType][0], args, err, oneLine(out))
	}
	return fsType, s.marks.clear(u.serial)
}

// What e2fsck's exit status says (its manual page).
const (
	fsckCorrected  = 1
	fsckUnreadable = 8 // as with a damaged superblock; less is damage further in
)

// check repairs a file system before it is mounted for writing. The log of xfs is
// replayed by mounting it.
func check(ctx context.Context, u volumeUse, d device, fsType string) error {
	if u.unchecked || u.readOnly || fsType == "xfs" {
		return nil
	}
	return fsck(ctx, u, d, "-p")
}

// fsck has e2fsck repair what it can repair without asking.
func fsck(ctx context.Context, u volumeUse, d device, args ...string) error {
	out, err := exec.CommandContext(context.WithoutCancel(ctx), "e2fsck", append(args, d.path)...).CombinedOutput()
	exit := (*exec.ExitError)(nil)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit) && exit.ExitCode() == fsckCorrected:
		klog.InfoS("A file system was repaired", "volume", u.volume, "device", d.path, "output", oneLine(out))
		return nil
	case errors.As(err, &exit) && exit.ExitCode() < 0:
		return u.errorf(disk.Unexpected, "e2fsck of %s was killed: %w", d.path, err)
	case errors.As(err, &exit) && exit.ExitCode() < fsckUnreadable:
		return u.blockedError("e2fsck can't repair the file system of %s by itself: %s; repair it by hand, or restore a snapshot", d.path, oneLine(out))
	case errors.As(err, &exit) && exit.ExitCode() < 2*fsckUnreadable:
		return u.blockedError("e2fsck can't read the file system of %s: %s; repair it by hand with a copy of its superblock (e2fsck -b), or restore a snapshot", d.path, oneLine(out))
	}
	return u.errorf(disk.Unexpected, "e2fsck %v %s: %w: %s", args, d.path, err, oneLine(out))
}
