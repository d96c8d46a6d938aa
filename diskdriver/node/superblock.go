package node

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
)

// superblock is what the superblock of a file system says (Linux, Documentation/filesystems/ext4/super.rst; fs/xfs/libxfs/xfs_format.h).
type superblock struct {
	fsType string // ext2, ext3, ext4 or xfs
	uuid   [16]byte
	size   int64 // bytes that the file system takes
	block  int64 // bytes of one of its blocks
	limit  int64 // bytes of as many blocks as it has numbers for; 0: more than any disk has
	// whole says that the superblock contradicts neither itself nor its checksum.
	whole bool
	// unfinished says that mkfs has not come to its end.
	unfinished bool
	// mounted says that the file system was mounted for writing, or that it doesn't tell.
	mounted bool
	// journaled says that its journal has to be replayed, as after a loss of power; of xfs that isn't known.
	journaled bool
	// hasErrors says that the kernel has found errors in the file system since it was checked.
	hasErrors bool
	// elsewhere says that its journal is on another device.
	elsewhere bool
	// clustered says that the ext file system has clusters of blocks (bigalloc).
	clustered bool
	// panics says that an error in the ext file system is to stop the node.
	panics bool
}

// parseSuperblock reads the superblock in the first block of a device, of xfs at 0 or of ext at 1024; the zero superblock if there is none.
func parseSuperblock(head []byte) superblock {
	switch {
	case isXFS(head):
		return parseXFS(head)
	case isExt(head[1024:]):
		return parseExt(head[1024:])
	}
	return superblock{}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// parseXFS reads a superblock of xfs.
func parseXFS(head []byte) superblock {
	be := binary.BigEndian
	s := superblock{fsType: "xfs", uuid: [16]byte(head[32:48]), block: int64(be.Uint32(head[4:])), unfinished: head[126] != 0, mounted: true}
	s.size = s.block * int64(be.Uint64(head[8:]))
	s.elsewhere = be.Uint64(head[48:]) == 0 // sb_logstart
	sector := int(be.Uint16(head[102:]))
	if version := be.Uint16(head[100:]) & 0xf; version < 5 || sector < 512 || sector > len(head) {
		s.whole = version == 4 && s.block >= 512
		return s
	}
	sum := bytes.Clone(head[:sector])
	copy(sum[224:], []byte{0, 0, 0, 0})
	s.whole = crc32.Checksum(sum, castagnoli) == binary.LittleEndian.Uint32(head[224:])
	s.mounted = be.Uint64(head[240:]) != 0 // the log sequence number of the last write of the superblock
	return s
}

// The features of ext that matter here.
const (
	extHasJournal  = 0x4   // s_feature_compat
	ext64Bit       = 0x80  // s_feature_incompat
	extMetadataCRC = 0x400 // s_feature_ro_compat
	extBigalloc    = 0x200
	ext3Incompat   = 0x2 | 0x4 | 0x10
	ext3ROCompat   = 0x1 | 0x2 | 0x4
)

// parseExt reads a superblock of ext.
func parseExt(head []byte) superblock {
	le := binary.LittleEndian
	compat, incompat, roCompat := le.Uint32(head[0x5c:]), le.Uint32(head[0x60:]), le.Uint32(head[0x64:])
	s := superblock{fsType: "ext2", uuid: [16]byte(head[0x68:0x78]), block: 1024 << min(le.Uint32(head[0x18:]), 6)}
	switch {
	case incompat&^ext3Incompat != 0 || roCompat&^ext3ROCompat != 0:
		s.fsType = "ext4"
	case compat&extHasJournal != 0:
		s.fsType = "ext3"
	}
	blocks := uint64(le.Uint32(head[0x4:]))
	if incompat&ext64Bit != 0 {
		blocks |= uint64(le.Uint32(head[0x150:])) << 32
	} else {
		s.limit = s.block << 32
	}
	s.size = s.block * int64(blocks)
	const hasErrors, needsRecovery = 2, 4 // s_state, s_feature_incompat
	s.journaled = incompat&needsRecovery != 0
	s.hasErrors = le.Uint16(head[0x3a:])&hasErrors != 0
	s.elsewhere = compat&extHasJournal != 0 && le.Uint32(head[0xe0:]) == 0 // s_journal_inum
	s.clustered = roCompat&extBigalloc != 0
	const panic = 3                                                                                  // s_errors
	s.panics = le.Uint16(head[0x3c:]) == panic || bytes.Contains(head[0x200:0x240], []byte("panic")) // s_mount_opts
	s.mounted = le.Uint32(head[0x2c:]) != 0 || le.Uint16(head[0x34:]) != 0                           // s_mtime, s_mnt_count
	s.whole = blocks > 0 && le.Uint32(head[0x18:]) <= 6 && le.Uint32(head[0x20:]) > 0 && le.Uint32(head[0x28:]) > 0
	if roCompat&extMetadataCRC != 0 {
		s.whole = s.whole && ^crc32.Checksum(head[:0x3fc], castagnoli) == le.Uint32(head[0x3fc:])
	}
	return s
}

// fills says whether the file system is as large as a device, to a block.
func (s superblock) fills(d device) bool { return s.size+s.block > d.size && s.size <= d.size }

// isExt says whether bytes are a superblock of ext of revision 1, as all are since 1997, or a copy of one.
func isExt(head []byte) bool {
	return binary.LittleEndian.Uint16(head[0x38:]) == 0xEF53 && binary.LittleEndian.Uint32(head[0x4c:]) == 1
}

// isXFS says whether bytes are a superblock of xfs, or a copy of one.
func isXFS(head []byte) bool { return bytes.HasPrefix(head, []byte("XFSB")) }
