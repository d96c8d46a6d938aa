package node

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"
)

// formatMark is what a format writes on its disk before it begins. It stays until the file system was mounted, so that a format that
// was cut short is known as one by any node, and is done again.
type formatMark struct {
	serial string
	fsType string
	uuid   uuid.UUID // of the file system that is made; zero if that wasn't noted
}

const (
	// markFromEnd is how far before the end of the disk the mark lies: mkfs of ext writes to the last 64 KiB, mkfs.xfs to the last 128,
	// and both leave the MiB before alone.
	markFromEnd = 512 << 10
	markSize    = piece
	markBegin   = "topodisk: a file system is being made on this disk\n"
)

// text is what the mark says, as long as its place.
func (m formatMark) text() []byte {
	text := make([]byte, markSize)
	copy(text, fmt.Sprintf("%sserial %s\nfsType %s\nuuid %s\n", markBegin, m.serial, m.fsType, m.uuid))
	return text
}

// writeMark puts a mark on a disk; it is there for good when it returns.
func (d device) writeMark(m formatMark) error { return d.writeAt(m.text(), d.size-markFromEnd) }

// eraseMark takes the mark off a disk; it is off for good when it returns.
func (d device) eraseMark() error { return d.writeAt(make([]byte, markSize), d.size-markFromEnd) }

// writeAt writes to a device and waits until it is there.
func (d device) writeAt(content []byte, at int64) error {
	f, err := os.OpenFile(d.path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("open the device: %w", err)
	}
	_, err = f.WriteAt(content, at)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write to the device: %w", err)
	}
	return nil
}

// sync waits until what was written to a device is there for good.
func (d device) sync() error {
	f, err := os.OpenFile(d.path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("open the device: %w", err)
	}
	return errors.Join(f.Sync(), f.Close())
}

// parseMark reads a mark; what is none has no serial number.
func parseMark(text []byte) (m formatMark) {
	words, is := strings.CutPrefix(string(bytes.TrimRight(text, "\x00")), markBegin)
	if !is {
		return m
	}
	var id string
	if n, err := fmt.Sscanf(words, "serial %s\nfsType %s\nuuid %s\n", &m.serial, &m.fsType, &id); n != 3 || err != nil {
		return formatMark{}
	}
	var err error
	if m.uuid, err = uuid.Parse(id); err != nil {
		return formatMark{}
	}
	return m
}

// markerOf01 returns the mark that the version before this one has left on the node instead of on the disk, if a format of this
// attachment was cut short by the upgrade.
func (s *Server) markerOf01(u volumeUse) formatMark {
	content, err := os.ReadFile(filepath.Join(s.plugin, "formatting", u.serial))
	if err != nil || u.attached == "" || string(content) != string(u.volume)+"\n"+u.attached+"\n" {
		return formatMark{}
	}
	return formatMark{serial: u.serial, fsType: u.newFSType()}
}
