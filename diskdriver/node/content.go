package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// content is what is on a device, as far as it was looked at.
type content struct {
	fsType string // of the file system or whatever else blkid knows, such as ext4 or LVM2_member
	table  string // of the partitions, such as gpt
	bytes  rawContent
}

// rawContent is how the bytes of a device look where a file system, a partition
// table or a copy of either would be, and in places spread all over it.
type rawContent int

const (
	someBytes      rawContent = iota // something is there
	zeros                            // nothing but zeros
	looksRandom                      // as after a write of random bytes, or of an encrypted disk that was never written to
	superblockCopy                   // a copy of a file system's head is there
)

// inspect looks at a device, at its bytes only if it holds no file system that
// is allowed. It writes nothing.
func inspect(ctx context.Context, d device) (content, error) {
	c, err := probe(ctx, d.path)
	if err != nil || slices.Contains(disk.Filesystems(), c.fsType) {
		return c, err
	}
	c.bytes, err = scan(d)
	return c, err
}

// blkidNothing is how blkid ends if it knows nothing of what it sees.
const blkidNothing = 2

// probe asks blkid. It doesn't believe its cache.
func probe(ctx context.Context, path string) (content, error) {
	out, err := exec.CommandContext(ctx, "blkid", "-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", path).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		if exit.ExitCode() == blkidNothing {
			return content{}, nil
		}
		return content{}, disk.Errorf(disk.Blocked, "blkid can't tell what is on %s: %w: %s", path, err, oneLine(exit.Stderr))
	}
	if err != nil {
		return content{}, fmt.Errorf("run blkid: %w", err)
	}
	var c content
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "TYPE":
			c.fsType = value
		case "PTTYPE":
			c.table = value
		}
	}
	return c, nil
}

const (
	piece   = 4 << 10
	head    = 1 << 20 // looked at whole at the beginning and the end
	samples = 64      // pieces looked at in between
)

// scan reads the beginning, the end, where copies of a superblock are, and
// pieces spread evenly over the device.
func scan(d device) (rawContent, error) {
	f, err := os.Open(d.path)
	if err != nil {
		return someBytes, fmt.Errorf("open the device: %w", err)
	}
	defer func() { _ = f.Close() }()
	buffer := make([]byte, piece)
	for _, copied := range superblocks(d.size) {
		if _, err := f.ReadAt(buffer, copied.at); err != nil {
			return someBytes, fmt.Errorf("read the device: %w", err)
		}
		if copied.is(buffer) {
			return superblockCopy, nil
		}
	}
	zero, random := true, true
	for _, offset := range offsets(d.size) {
		if _, err := f.ReadAt(buffer, offset); err != nil && !errors.Is(err, io.EOF) {
			return someBytes, fmt.Errorf("read the device: %w", err)
		}
		zero = zero && !slices.ContainsFunc(buffer, func(b byte) bool { return b != 0 })
		random = random && isRandom(buffer)
		if !zero && !random {
			return someBytes, nil
		}
	}
	if zero {
		return zeros, nil
	}
	return looksRandom, nil
}

// offsets returns where a device of a size is looked at.
func offsets(size int64) []int64 {
	var all []int64
	for at := int64(0); at < min(head, size-piece); at += piece {
		all = append(all, at)
		if tail := size - head + at; tail > at {
			all = append(all, tail)
		}
	}
	for i := range int64(samples) {
		all = append(all, size/samples*i/piece*piece)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// isRandom says whether bytes look random. 4 096 random bytes have nearly all of the
// 256 values; text, code, numbers and what a file system writes have far fewer.
func isRandom(piece []byte) bool {
	var seen [256]bool
	values := 0
	for _, b := range piece {
		if !seen[b] {
			seen[b] = true
			values++
		}
	}
	return values >= 250
}

// superblock is where a copy of a file system's head begins, and how to tell it.
type superblock struct {
	at int64
	is func(head []byte) bool
}

// superblocks returns where mkfs puts copies of a superblock by default: ext at
// the second block group, for each size of its blocks; xfs at the beginning of
// each of its allocation groups.
func superblocks(size int64) []superblock {
	all := []superblock{{8193 << 10, isExt}, {16384 * 2 << 10, isExt}, {32768 * 4 << 10, isExt}}
	for _, at := range allocationGroups(size) {
		all = append(all, superblock{at, isXFS})
	}
	return slices.DeleteFunc(all, func(s superblock) bool { return s.at+piece > size })
}

// allocationGroups returns where xfs can have an allocation group (xfsprogs,
// calc_default_ag_geometry): at each quarter of a disk of less than 4 TiB, and
// at the second quarter of whatever whole size a disk had before it grew; on a
// larger one every TiB less a block.
func allocationGroups(size int64) (all []int64) {
	const (
		block   = 4 << 10
		tib     = int64(1) << 40
		quarter = disk.BytesPerGiB / 4 // of the smallest disk
	)
	for i := range int64(4) {
		all = append(all, (size/block+3)/4*block*i)
	}
	for at := int64(quarter); at <= min(size/4, tib); at += quarter {
		all = append(all, at)
	}
	for b := int64(512); b <= 64<<10; b *= 2 {
		for at := tib - b; at < size; at += tib - b {
			all = append(all, at)
		}
	}
	return all
}

// isExt says whether bytes are the copy of an ext superblock in group 1.
func isExt(head []byte) bool {
	return bytes.Equal(head[56:58], []byte{0x53, 0xEF}) && bytes.Equal(head[90:92], []byte{1, 0})
}

// isXFS says whether bytes are a copy of an xfs superblock.
func isXFS(head []byte) bool { return bytes.HasPrefix(head, []byte("XFSB")) }

// oneLine puts a program's output into one line.
func oneLine(output []byte) string { return strings.Join(strings.Fields(string(output)), " ") }
