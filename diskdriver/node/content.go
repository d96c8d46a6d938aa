package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// content is what is on a device, as far as it was looked at.
type content struct {
	fsType string     // of the file system or whatever else is known of it, such as ext4 or LVM2_member
	table  string     // of the partitions, such as gpt
	super  superblock // at the head; the zero superblock if there is none
	mark   formatMark // of a format of this disk; the zero mark if there is none

	// How the bytes look of what isn't a file system that is ready to be mounted, where a file system, a partition table or a copy of
	// either would be, and in places spread all over the device. Such samples license no format: they may forbid one.
	zeros, random bool       // all that was looked at is zeros, or looks random
	copies        [][16]byte // the UUIDs of file systems of whose superblock a copy is there
	elsewhere     bool       // there are bytes where the format that was cut short writes none
}

// isReady says whether a file system that is allowed is there, from its first to its last block.
func (c content) isReady() bool {
	return slices.Contains(disk.Filesystems(), c.fsType) && !c.super.unfinished
}

// inspect looks at the device of a disk. It writes nothing to it. A device that can't be read is an error.
//
// A superblock that is whole and speaks of the whole device is believed whatever else the bytes look like: they may be those of a
// file, such as an image of another file system.
func (s *Server) inspect(ctx context.Context, u volumeUse, d device) (content, error) {
	c, err := look(d)
	if err != nil {
		return c, err
	}
	text, err := d.read(d.size - markFromEnd)
	if err != nil {
		return c, err
	}
	c.mark = parseMark(text)
	marked := c.mark.serial == u.serial
	if !marked {
		c.mark = s.markerOf01(u)
	}
	if c.mark == (formatMark{}) && c.isReady() {
		return c, nil
	}
	expected, err := s.rehearse(u, d, c.mark)
	if err != nil {
		return c, err
	}
	defer func() { _ = expected.Close() }() // of none it does nothing
	if err = c.scan(ctx, d, expected); err == nil && !marked {
		c.note(text, text)
	}
	return c, err
}

// look says which file system or table is on a device.
func look(d device) (c content, err error) {
	if c.super, err = d.superblock(); err != nil {
		return c, err
	}
	if c.super.whole && c.super.fills(d) && slices.Contains(disk.Filesystems(), c.super.fsType) {
		c.fsType = c.super.fsType
		return c, nil
	}
	c.fsType, c.table, err = probe(d.path)
	return c, err
}

// blkidNothing and blkidAmbivalent are how blkid ends if it knows nothing of what it sees, or several things.
const (
	blkidNothing    = 2
	blkidAmbivalent = 8
)

// probe asks blkid what is on a device. It doesn't believe its cache.
func probe(path string) (fsType, table string, err error) {
	out, err := run("", "blkid", "-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", path)
	switch {
	case exitCode(err) == blkidNothing:
		return "", "", nil
	case exitCode(err) == blkidAmbivalent:
		return "", "", disk.Errorf(disk.Blocked, "%s holds what looks like several file systems or formats at once; wipefs --no-act %s lists them. Nothing was written to it", path, path)
	case err != nil:
		return "", "", disk.Errorf(disk.Blocked, "blkid can't tell what is on %s: %w", path, err)
	}
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "TYPE":
			fsType = value
		case "PTTYPE":
			table = value
		}
	}
	return fsType, table, nil
}

// read reads a block of a device. What can't be read is Blocked, and not taken for damage of what is on it.
func (d device) read(at int64) ([]byte, error) {
	f, err := os.Open(d.path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	content := make([]byte, piece)
	if _, err := f.ReadAt(content, max(at, 0)); err != nil && !errors.Is(err, io.EOF) {
		return nil, d.readError(at, err)
	}
	return content, nil
}

// readError is the error of a device that can't be read.
func (d device) readError(at int64, err error) error {
	if !errors.Is(err, unix.EIO) {
		return fmt.Errorf("read %s: %w", d.path, err)
	}
	return disk.Errorf(disk.Blocked, "%s can't be read at byte %d: %w. That is an error of the disk or of the way to it, not of what is on it: "+
		"nothing was written to it; see the kernel's log (dmesg) and the disk's events in ECS", d.path, at, err)
}

// superblock reads the superblock at the head of a device.
func (d device) superblock() (superblock, error) {
	head, err := d.read(0)
	if err != nil {
		return superblock{}, err
	}
	return parseSuperblock(head), nil
}
