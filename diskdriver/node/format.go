package node

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// formats is how each file system is made by default: nothing of what is there is needed, and root needs no share of a volume.
var formats = map[string][]string{
	"ext3": {"mkfs.ext3", "-F", "-m0"},
	"ext4": {"mkfs.ext4", "-F", "-m0"},
	"xfs":  {"mkfs.xfs", "-f"},
}

// format makes the file system, and proves that it can be mounted. Until then its mark is on the disk, so that a format that is cut
// short is done again. It isn't cut short when its caller gives up: a large disk would never be done.
func (s *Server) format(u volumeUse, d device, mark formatMark) error {
	call, err := s.mkfs(u, mark, d, d.path)
	if err != nil {
		return err
	}
	lock, err := d.lockToFormat()
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	klog.InfoS("Making a file system", "volume", u.volume, "device", d.path, "fsType", mark.fsType, "args", call)
	if err := d.writeAt(mark.text(), d.size-markFromEnd); err != nil {
		return err
	}
	if err := s.records.note(u.serial); err != nil {
		return errors.Join(err, d.eraseMark())
	}
	mkfs := exec.Command(call[0], call[1:]...)
	mkfs.ExtraFiles = []*os.File{lock}
	if _, err := output(mkfs); err != nil {
		return u.errorf(disk.Unexpected, "%w", err)
	}
	if err := s.tryMount(u, d, mark.fsType); err != nil {
		return fmt.Errorf("mount the file system that was just made: %w", err)
	}
	if err := d.eraseMark(); err != nil {
		return err
	}
	if err := remove(s.formatting01(u)); err != nil {
		klog.ErrorS(err, "What an earlier version noted of a format is left", "volume", u.volume)
	}
	return nil
}

// lockToFormat takes the lock of a device (flock(2), as https://systemd.io/BLOCK_DEVICE_LOCKING has it). Its holder hands it to mkfs: that
// may outlive a plugin that is killed, and holds the device itself only once it has opened it.
func (d device) lockToFormat() (*os.File, error) {
	f, err := os.Open(d.path)
	if err != nil {
		return nil, err
	}
	if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		err = disk.Errorf(disk.InUse, "%s is locked by another program, such as an mkfs that a plugin has left when it was killed: its end is waited for", d.path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// newMark is the mark of the format that a device's content licenses. One that is done again keeps the mark: what the first has left must
// still be known as its own if the second is cut short before it writes.
func (u volumeUse) newMark(c content) formatMark {
	if u.isCutShort(c) {
		return c.mark
	}
	return formatMark{serial: u.serial, fsType: u.newFSType(), uuid: uuid.New()}
}

// mkfs is the call that makes the file system of a mark as it is on a device, be it there or in a file at a path. Nothing is discarded, for
// that would take the mark off the disk.
func (s *Server) mkfs(u volumeUse, m formatMark, d device, path string) ([]string, error) {
	id := cmp.Or(m.uuid, uuid.New()).String()
	named := []string{"-U", id}
	if m.fsType == "xfs" {
		named = []string{"-m", "uuid=" + id}
	}
	options, err := u.mkfsArgs(m.fsType, d, s.allowed)
	return slices.Concat(formats[m.fsType], named, options, []string{path}), err
}

// rehearse makes the file system of a mark in a file as large as the device, and returns the file: what a format that was cut short
// has left on a disk is part of that. Without a mark there is none.
func (s *Server) rehearse(u volumeUse, d device, m formatMark) (*os.File, error) {
	if formats[m.fsType] == nil {
		return nil, nil
	}
	const logOfXFS = 2 << 30
	need := min(d.size/1024+64<<20, logOfXFS+1<<30) // measured of disks from 20 GiB to 32 TiB, with as much to spare
	if err := checkRoom(u, s.plugin, need, "a format of the disk was cut short"); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(s.plugin, rehearsals)
	if err != nil {
		return nil, hostError("make a file to see what a format writes", err)
	}
	call, err := s.mkfs(u, m, d, f.Name())
	if err == nil {
		err = f.Truncate(d.size)
	}
	if errors.Is(err, unix.EFBIG) { // ext4 has no file of 16 TiB
		err = u.blockedError("a format of the disk was cut short, and to see what it has left takes a file of %s, as large as the disk, "+
			"which the file system of %s can't have; let the volume be used on a node that has xfs there, or make a new volume; %s", inGiB(d.size), s.plugin, untouched)
	}
	if err == nil {
		_, err = run("", call[0], call[1:]...)
	}
	if err = errors.Join(err, os.Remove(f.Name())); err != nil { // it lasts until it is closed
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// rehearsals is how the names of the files begin that rehearse makes.
const rehearsals = "format-"

// removeRehearsals removes the files that a process which was killed has left in a plugin's directory: each may take 2 GiB.
func removeRehearsals(plugin string) {
	left, err := filepath.Glob(filepath.Join(plugin, rehearsals+"*"))
	for _, file := range left {
		err = errors.Join(err, remove(file))
	}
	if err != nil {
		klog.ErrorS(err, "A file that an earlier process made to see what a format writes is left", "directory", plugin)
	}
}

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
	markForm    = "topodisk: a file system is being made on this disk\nserial %s\nfsType %s\nuuid %s\n"
)

// text is what the mark says, as long as its place.
func (m formatMark) text() []byte {
	text := make([]byte, markSize)
	copy(text, fmt.Sprintf(markForm, m.serial, m.fsType, m.uuid))
	return text
}

// parseMark reads a mark; what is none has no serial number.
func parseMark(text []byte) (m formatMark) {
	var id string
	if _, err := fmt.Sscanf(string(bytes.TrimRight(text, "\x00")), markForm, &m.serial, &m.fsType, &id); err != nil {
		return formatMark{}
	}
	var err error
	if m.uuid, err = uuid.Parse(id); err != nil {
		return formatMark{}
	}
	return m
}

// dropMark takes the mark of a format that was cut short off its disk, and what an earlier version noted of one. Another disk's mark,
// which a snapshot has carried here, is left: it licenses nothing.
func (s *Server) dropMark(u volumeUse, d device) error {
	text, err := d.read(d.size - markFromEnd)
	if err == nil && parseMark(text).serial == u.serial {
		klog.InfoS("The mark of a format that was cut short is erased, for the disk is used as a block volume", "volume", u.volume, "device", d.path)
		err = d.eraseMark()
	}
	return errors.Join(err, remove(s.formatting01(u)))
}

// eraseMark takes the mark off a disk; it is off for good when it returns.
func (d device) eraseMark() error { return d.writeAt(make([]byte, markSize), d.size-markFromEnd) }

// writeAt writes to a device that nobody uses, and keeps others from using it meanwhile; all that was written to it is there for good when
// it returns.
func (d device) writeAt(content []byte, at int64) error {
	f, err := os.OpenFile(d.path, os.O_WRONLY|unix.O_EXCL, 0)
	if errors.Is(err, unix.EBUSY) {
		return disk.Errorf(disk.InUse, "%s is in use meanwhile, and nothing is written to it: %w", d.path, err)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteAt(content, at)
	return errors.Join(err, f.Sync(), f.Close())
}

// sync waits until what was written to a device is there for good.
func (d device) sync() error { return d.writeAt(nil, 0) }

// formatting01 is where the version before this one noted on the node, instead of on the disk, that a format began.
func (s *Server) formatting01(u volumeUse) string {
	return filepath.Join(s.plugin, "formatting", u.serial)
}

// markerOf01 returns the mark that the version before this one has left if a format of this attachment was cut short by the upgrade.
func (s *Server) markerOf01(u volumeUse) formatMark {
	content, err := os.ReadFile(s.formatting01(u))
	if err != nil || u.attached == "" || string(content) != string(u.volume)+"\n"+u.attached+"\n" {
		return formatMark{}
	}
	return formatMark{serial: u.serial, fsType: u.newFSType()}
}
