package node

import (
	"fmt"
	"math"
	"os"
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
	// clustered says that it is an ext of clusters, which resize2fs leaves damaged if it is forced to let it grow while it isn't mounted.
	clustered bool
}

// extent measures the file system of a device, which is mounted at a path: ext by its
// superblock; xfs by what the kernel says, for it writes the superblock later.
func (ds devices) extent(number uint64, at string) (e extent, err error) {
	if e.whole, e.on, err = ds.byNumber(number); err != nil {
		return e, err
	}
	if e.on != e.whole {
		if e.start, err = ds.startOf(e.on); err != nil {
			return e, err
		}
	}
	super, err := e.on.superblock()
	e.size, e.limit, e.xfs, e.clustered = super.size, super.limit, super.fsType == "xfs", super.clustered
	switch {
	case err != nil:
	case e.xfs:
		e.size, err = sizeOfXFS(at)
	case super.fsType == "":
		err = fmt.Errorf("%s has the superblock of neither ext nor xfs", e.on.path)
	}
	return e, err
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

// sizeOfXFS returns how large the xfs is that is mounted at a path, as the kernel says (Linux, struct xfs_fsop_geom_v1).
func sizeOfXFS(at string) (int64, error) {
	f, err := os.Open(at)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	var geometry struct {
		block  uint32
		_      [7]uint32
		blocks uint64
		_      [9]uint64
	}
	const getGeometry = 2<<30 | unsafe.Sizeof(geometry)<<16 | 'X'<<8 | 100 // XFS_IOC_FSGEOMETRY_V1
	if _, _, failed := unix.Syscall(unix.SYS_IOCTL, f.Fd(), getGeometry, uintptr(unsafe.Pointer(&geometry))); failed != 0 {
		return 0, fmt.Errorf("ask xfs for its size: %w", failed)
	}
	return int64(geometry.block) * int64(geometry.blocks), nil
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

// inGiB is a number of bytes for people.
func inGiB(bytes int64) string {
	return strconv.FormatFloat(math.Round(10*float64(bytes)/disk.BytesPerGiB)/10, 'f', -1, 64) + " GiB"
}
