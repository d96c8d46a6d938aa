package node

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// slack is what a file system may leave of its disk: a last group of blocks that is
// too small to be one, the ends of a partition table. A disk grows by whole GiB.
const slack = disk.BytesPerGiB / 2

// extent is how much of its disk a mounted file system takes.
type extent struct {
	whole device
	on    device // the disk, or the partition that it is in
	start int64  // where it begins on the disk
	size  int64  // bytes that it has
	limit int64  // the most that its form has numbers for; 0: more than any disk
	xfs   bool   // and not ext
}

// room is what the disk has for the file system.
func (e extent) room() int64 { return e.whole.size - e.start }

// isFilled says whether the file system takes all that its disk has for it.
func (e extent) isFilled() bool { return e.room()-e.size < slack }

// sizes says how large the file system and its disk are.
func (e extent) sizes() string {
	return fmt.Sprintf("the file system has %s of the %s of its disk", inGiB(e.size), inGiB(e.whole.size))
}

// short is why the file system doesn't fill its disk.
func (e extent) short(why error) error { return fmt.Errorf("%s: %w", e.sizes(), why) }

// checkLimit refuses to have a file system fill its disk that can't number so many
// blocks, and never will.
func (e extent) checkLimit() error {
	if e.limit == 0 || e.room() <= e.limit {
		return nil
	}
	return fmt.Errorf("without the feature 64bit it has at most %s; copy its files to a new volume to have more", inGiB(e.limit))
}

// inGiB is a number of bytes for people.
func inGiB(bytes int64) string {
	return strconv.FormatFloat(math.Round(10*float64(bytes)/disk.BytesPerGiB)/10, 'f', -1, 64) + " GiB"
}

// extent measures the file system of a device, which is mounted at a path.
func (ds devices) extent(number uint64, at string) (e extent, err error) {
	if e.whole, e.on, err = ds.byNumber(number); err != nil {
		return e, err
	}
	if e.on != e.whole {
		if e.start, err = ds.startOf(e.on); err != nil {
			return e, err
		}
	}
	return e, e.measure(at)
}

// startOf returns where a partition begins on its disk.
func (ds devices) startOf(part device) (int64, error) {
	const sector = 512 // whatever the disk's own is (Linux, Documentation/ABI/stable/sysfs-block)
	text, err := os.ReadFile(filepath.Join(ds.shown(part.number), "start"))
	var sectors int64
	if err == nil {
		sectors, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	}
	if err != nil {
		return 0, fmt.Errorf("look where %s begins: %w", part.path, err)
	}
	return sectors * sector, nil
}

// measure reads how large the file system is that is mounted at a path: ext by its
// superblock; xfs by what the kernel says, for it writes the superblock later.
func (e *extent) measure(at string) error {
	head, err := e.on.read(0)
	if err != nil {
		return err
	}
	super := parseSuperblock(head)
	e.size, e.limit, e.xfs = super.size, super.limit, super.fsType == "xfs"
	switch {
	case e.xfs:
		e.size, err = sizeOfXFS(at)
	case super.fsType == "":
		err = fmt.Errorf("%s has the superblock of neither ext nor xfs", e.on.path)
	}
	return err
}

// geometryOfXFS is what the kernel says of an xfs (Linux, struct xfs_fsop_geom_v1).
type geometryOfXFS struct {
	block  uint32
	_      [7]uint32
	blocks uint64
	_      [9]uint64
}

// sizeOfXFS returns how large the xfs is that is mounted at a path.
func sizeOfXFS(at string) (int64, error) {
	f, err := os.Open(at)
	if err != nil {
		return 0, fmt.Errorf("open the file system: %w", err)
	}
	defer func() { _ = f.Close() }()
	var g geometryOfXFS
	const getGeometry = 2<<30 | unsafe.Sizeof(g)<<16 | 'X'<<8 | 100 // XFS_IOC_FSGEOMETRY_V1
	if _, _, failed := unix.Syscall(unix.SYS_IOCTL, f.Fd(), getGeometry, uintptr(unsafe.Pointer(&g))); failed != 0 {
		return 0, fmt.Errorf("ask xfs for its size: %w", failed)
	}
	return int64(g.block) * int64(g.blocks), nil
}

// grow lets a mounted file system, and the partition that it is in, fill its disk. If
// it doesn't, the error says why and what to do; the file system is of use as it is.
func (s *Server) grow(ctx context.Context, volume disk.ID, number uint64, at string) (extent, error) {
	e, err := s.devices.extent(number, at)
	if err != nil || e.isFilled() {
		return e, err
	}
	if err := e.checkLimit(); err != nil {
		return e, e.short(err)
	}
	if err := s.ungrown.inVain(volume, e.whole.size); err != nil {
		return e, err
	}
	if e.on != e.whole {
		err = growPartition(ctx, e)
	}
	err = cmp.Or(e.growMounted(ctx, at), err)
	if now, failed := s.devices.extent(number, at); failed == nil {
		e = now
	}
	if err == nil && !e.isFilled() {
		err = errors.New("the programs that let it grow have ended without an error")
	}
	if err != nil {
		return e, e.short(err)
	}
	return e, nil
}

// growMounted lets a file system fill its device while it is mounted.
func (e extent) growMounted(ctx context.Context, at string) error {
	if e.xfs {
		_, err := run(ctx, "", "xfs_growfs", "-d", at)
		return err
	}
	if _, err := run(ctx, "", "resize2fs", e.on.path); err != nil {
		return fmt.Errorf("%w; not every kernel lets it grow while it is mounted: delete the Pods that use the volume, and it grows before the next one starts", err)
	}
	return nil
}

// mayUnmount says whether an ext file system that has not grown while it is mounted may
// be unmounted for it: nobody uses it, and that was not in vain since it was staged, for
// it may take long.
func (s *Server) mayUnmount(u volumeUse, e extent, staging string) bool {
	if e.xfs || e.size == 0 || e.checkLimit() != nil || e.on.size-e.size < slack {
		return false
	}
	uses, err := s.mounts.uses(e.on.number, staging)
	return err == nil && len(uses) == 0 && s.ungrown.inVain(u.volume, e.whole.size) == nil
}

// growUnmounted takes away the mount of an ext file system that nobody uses, lets it
// fill its device, and mounts it again. The one error is why it doesn't fill it, the
// other why it isn't mounted any more.
func (s *Server) growUnmounted(ctx context.Context, u volumeUse, e extent, staging string) (short, err error) {
	m, _, err := s.mounts.at(staging)
	if err == nil {
		err = s.mounts.unmount(staging)
	}
	if err != nil {
		return err, nil // it is mounted still
	}
	// Its journal is empty now, so e2fsck finds what is wrong without writing.
	if _, short = run(ctx, "", "e2fsck", "-f", "-n", e.on.path); short != nil {
		short = fmt.Errorf("%w; take a snapshot of the disk, and repair the file system by hand", short)
	} else {
		short = s.resizeUnmounted(ctx, u, e.on)
	}
	if short != nil {
		short = e.short(short)
		s.ungrown.noteInVain(u.volume, e.whole.size, short)
	}
	return short, s.mountFileSystem(u, e.on, m.FsType, staging)
}

// growPartition lets the only partition of a disk fill it, and tells the kernel.
func growPartition(ctx context.Context, e extent) error {
	if e.room()-e.on.size < slack {
		return nil
	}
	if err := checkTable(ctx, e); err != nil {
		return err
	}
	number := strings.TrimLeft(strings.TrimPrefix(e.on.name(), e.whole.name()), "p")
	_, err := run(ctx, ", +\n", "sfdisk", "--no-reread", "--no-tell-kernel", "-N", number, e.whole.path)
	if err == nil {
		_, err = run(ctx, "", "partx", "--update", "--nr", number, e.whole.path)
	}
	if err != nil {
		return fmt.Errorf("make its partition larger: %w", err)
	}
	return nil
}

// checkTable refuses to make a partition larger that isn't alone in the table of its
// disk, or whose table has no numbers for what lies further back: sfdisk makes it
// smaller then.
func checkTable(ctx context.Context, e extent) error {
	out, err := run(ctx, "", "sfdisk", "--json", e.whole.path)
	if err != nil {
		return fmt.Errorf("read the partition table: %w", err)
	}
	var shown struct {
		Table struct {
			Label      string     `json:"label"`
			SectorSize int64      `json:"sectorsize"`
			Partitions []struct{} `json:"partitions"`
		} `json:"partitiontable"`
	}
	if err := json.Unmarshal(out, &shown); err != nil {
		return fmt.Errorf("read the partition table: %w", err)
	}
	t, reach := shown.Table, cmp.Or(shown.Table.SectorSize, 512)<<32
	switch {
	case len(t.Partitions) != 1:
		return fmt.Errorf("its disk has %d partitions, and only one that is alone is made larger; do it by hand", len(t.Partitions))
	case t.Label == "gpt":
		return nil
	case t.Label != "dos":
		return fmt.Errorf("its partition is in a table of type %s; only those of type gpt and dos are made larger, so do it by hand", t.Label)
	case e.whole.size > reach:
		return fmt.Errorf("its partition is in a table of type dos, which reaches no further than %s; copy its files to a new volume to have more", inGiB(reach))
	}
	return nil
}

// run runs a program to its end, whatever becomes of the caller, and returns its output.
// The error has how that begins and ends.
func run(ctx context.Context, input, program string, args ...string) ([]byte, error) {
	command := exec.CommandContext(context.WithoutCancel(ctx), program, args...)
	var said bytes.Buffer
	command.Stdin, command.Stderr = strings.NewReader(input), &said
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(command.Args, " "), err, brief(oneLine(append(out, said.Bytes()...))))
	}
	return out, nil
}

// brief leaves the middle of a long text out.
func brief(text string) string {
	const end = 200
	if len(text) <= 2*end {
		return text
	}
	return strings.ToValidUTF8(text[:end], "") + " ... " + strings.ToValidUTF8(text[len(text)-end:], "")
}

// resizeUnmounted has resize2fs grow a file system that isn't mounted. The node records it for as long as a crash would leave what no
// kernel mounts.
func (s *Server) resizeUnmounted(ctx context.Context, u volumeUse, d device) error {
	if err := s.records.noteGrowth(u); err != nil {
		return err
	}
	if _, err := run(ctx, "", "resize2fs", "-f", d.path); err != nil { // without -f it asks for an e2fsck that writes
		return err
	}
	if err := d.sync(); err != nil {
		return err
	}
	return s.records.endGrowth(u.serial)
}
