package node

import (
	"fmt"
	"slices"
	"strings"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// defaultFSType is the file system made if none is asked for.
const defaultFSType = "ext4"

// step is what to do with a device before it is mounted.
type step int

const (
	keep      step = iota // the file system that is there
	partition             // the file system of the only partition
	format                // make a file system
)

// plan decides what to do with a device by what is on it. It never decides to
// format what may be data: a doubt is an error that says what to do.
func (u volumeUse) plan(c content, partitions int, unfinished bool) (step, error) {
	switch {
	case slices.Contains(disk.Filesystems(), c.fsType):
		if u.fsType != "" && u.fsType != c.fsType {
			return keep, u.blockedError("the disk holds %s, and the volume is to be %s; set fsType to %s, or make a new volume", c.fsType, u.fsType, c.fsType)
		}
		return keep, nil
	case unfinished && c.table == "" && (c.fsType == "" || c.fsType == "jbd"): // all that blkid sees of a format that was cut short
		return u.planFormat("a format was begun on this node and not finished")
	case c.bytes == superblockCopy && c.fsType == "jbd": // what blkid takes an ext superblock for in which one bit is wrong
		return keep, u.damagedError()
	case c.fsType != "":
		return keep, u.blockedError("the disk holds %s, which is none of %s; if nothing on it is needed, wipe it", c.fsType, strings.Join(disk.Filesystems(), ", "))
	case c.table != "" && partitions == 1:
		return partition, nil
	case c.table != "" && partitions > 1:
		return keep, u.blockedError("the disk has %d partitions, and it can't be told which is the volume; allowed is one", partitions)
	case c.table != "" && !c.isMisreadTable():
		return keep, u.blockedError("the disk has an empty partition table (%s); if nothing on it is needed, wipe it", c.table)
	case c.bytes == zeros:
		return u.planFormat("it is all zeros")
	case c.bytes == looksRandom && u.origin == disk.OriginEmpty:
		return u.planFormat("it was made empty and holds random bytes")
	case c.bytes == looksRandom:
		return keep, u.blockedError("the disk holds random bytes, which may be data; if it was never used, set volume attribute %s to %q", disk.OriginKey, disk.OriginEmpty)
	case c.bytes == superblockCopy:
		return keep, u.damagedError()
	default:
		return keep, u.blockedError("the disk holds bytes that are no file system, perhaps one that is damaged; restore a snapshot, or wipe the disk if nothing on it is needed")
	}
}

// isMisreadTable says whether a partition table is none: blkid takes random bytes for
// an ancient one now and then.
func (c content) isMisreadTable() bool { return c.table == "atari" && c.bytes == looksRandom }

// planFormat decides to format, unless there is a reason not to write.
func (u volumeUse) planFormat(why string) (step, error) {
	switch {
	case u.readOnly:
		return keep, u.blockedError("the disk has no file system (%s), and none is made as the node may not write to it; use the volume for writing once", why)
	case u.origin == disk.OriginSnapshot || u.origin == disk.OriginVolume:
		return keep, u.blockedError("the disk was made from a %s and has no file system (%s); what is restored is never formatted; use it as a block volume", u.origin, why)
	}
	return format, nil
}

// damagedError is the error of a disk on which there was a file system.
func (u volumeUse) damagedError() error {
	return u.blockedError("the head of the disk's file system is damaged and a copy of it is left; repair it (e2fsck -b, xfs_repair) or restore a snapshot")
}

// blockedError is the error of a disk whose state somebody has to change.
func (u volumeUse) blockedError(text string, args ...any) error {
	return u.errorf(disk.Blocked, text, args...)
}

// errorf is an error of the volume.
func (u volumeUse) errorf(kind disk.Kind, text string, args ...any) error {
	return &disk.Error{Disk: u.volume, Kind: kind, Err: fmt.Errorf(text, args...)}
}
