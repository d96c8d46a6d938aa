package node

import (
	"cmp"
	"slices"
	"strings"

	"github.com/google/uuid"

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
	readAll               // make one if every byte of the disk is zero: there is nothing to lose then
)

// plan decides what to do with a device. What licenses a format is what was done to the disk: it is new, or a format of it was cut
// short; or that all of it was read and is zero. What samples of its bytes look like may only forbid one: then the error says what to do.
func (u volumeUse) plan(c content, partitions int) (step, error) {
	table := c.table
	if table == "atari" && c.random { // blkid takes random bytes for an ancient table now and then
		table = ""
	}
	switch {
	case u.isCutShort(c):
		return u.planFormat(format, "a format of it was begun and not finished")
	case c.isReady() && partitions > 0: // whichever of them isn't in use any more, to mount it would overwrite the other
		return keep, u.blockedError("the disk holds %s as a whole and %d partitions too, and it can't be told which is the volume; erase by hand the signature of what is no longer used (wipefs); %s", c.fsType, partitions, untouched)
	case c.isReady() && c.super.elsewhere:
		return keep, u.blockedError("the disk holds %s whose journal is on another device, which the kernel would write to; a volume is one disk: give the file system a journal of its own by hand, or copy its files to a new volume; %s", c.fsType, untouched)
	case c.isReady() && u.fsType != "" && u.fsType != c.fsType:
		return keep, u.blockedError("the disk holds %s, and the volume is to be %s; set fsType to %s, or make a new volume", c.fsType, u.fsType, c.fsType)
	case c.isReady():
		return keep, nil
	case c.super.unfinished:
		return keep, u.blockedError("the disk holds an %s whose mkfs was cut short, and no mark of that; if the volume was never used, make a new one, else restore a snapshot; %s", c.super.fsType, untouched)
	case len(c.copies) > 0 && table == "" && (c.fsType == "" || c.fsType == "jbd"): // jbd is what blkid takes a superblock of ext for with a wrong bit
		return keep, u.blockedError("the head of the disk's file system is damaged, and a copy of its superblock is left; take a snapshot of the disk, then repair it by hand (e2fsck -b, xfs_repair), or restore a snapshot; %s", untouched)
	case c.fsType != "":
		return keep, u.blockedError("the disk holds %s, which is none of %s; %s", c.fsType, strings.Join(disk.Filesystems(), ", "), untouched)
	case table != "" && partitions == 1:
		return partition, nil
	case table != "" && partitions > 1:
		return keep, u.blockedError("the disk has %d partitions, and it can't be told which is the volume; allowed is one", partitions)
	case table != "":
		return keep, u.blockedError("the disk has a partition table (%s), and the kernel shows no partition of it, be it empty, damaged or for sectors of another size; %s", table, untouched)
	case !c.zeros && !c.random:
		return keep, u.blockedError("the disk holds bytes that are no file system that is known, perhaps one that is damaged, or data of a block volume; restore a snapshot, or use it as a block volume; %s", untouched)
	case u.history == disk.HistoryNew:
		return u.planFormat(format, "it is new")
	case c.random:
		return keep, u.blockedError("the disk holds random bytes, which may be encrypted data, and it was attached before; %s", untouched)
	}
	return u.planFormat(readAll, "its beginning, its end and samples are zeros")
}

// untouched ends the errors of disks that may hold data.
const untouched = "nothing was written to it"

// isCutShort says whether a format of this disk was cut short and can be done again: its mark is there, nobody has mounted what was
// made since, and there is nothing but what such a format leaves. A snapshot carries the mark to other disks, which it doesn't name.
func (u volumeUse) isCutShort(c content) bool {
	isOurs := func(id [16]byte) bool { return c.mark.uuid == uuid.Nil || id == c.mark.uuid }
	switch {
	case c.mark.serial != u.serial || c.mark.fsType != u.newFSType():
		return false
	case c.super.fsType != "" && (c.super.whole && c.super.mounted && !c.super.unfinished || !isOurs(c.super.uuid)):
		return false
	case !slices.Contains([]string{"", c.mark.fsType, "jbd"}, c.fsType) || c.table != "" || c.elsewhere:
		return false
	}
	return !slices.ContainsFunc(c.copies, func(id [16]byte) bool { return !isOurs(id) })
}

// planFormat decides to format, unless there is a reason not to write.
func (u volumeUse) planFormat(next step, why string) (step, error) {
	switch {
	case u.readOnly:
		return keep, u.blockedError("the disk has no file system (%s), and none is made as the node may not write to it; use the volume for writing once", why)
	case u.origin == disk.OriginSnapshot || u.origin == disk.OriginVolume:
		return keep, u.blockedError("the disk was made from a %s and has no file system (%s); what is restored is never formatted; use it as a block volume", u.origin, why)
	}
	return next, nil
}

// newFSType is the file system that a format makes.
func (u volumeUse) newFSType() string { return cmp.Or(u.fsType, defaultFSType) }
