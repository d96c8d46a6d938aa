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
	"sync"

	"golang.org/x/sync/errgroup"
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
	// either would be, and in places spread all over the device. Nothing of it licenses a format: it may forbid one.
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

// isUnreadable says whether places of a device can't be read, among those that are spread over it.
func (d device) isUnreadable() bool {
	return errors.Is(new(content).scan(context.Background(), d, nil), unix.EIO)
}

const (
	sector   = 512
	piece    = 4 << 10
	headSize = 8 << 20 // looked at whole at the beginning: a first partition and its file system's first blocks are in it
	tailSize = 1 << 20 // and at the end
	samples  = 1024    // pieces looked at in between
	parallel = 16      // reads at a time
)

// scan reads the beginning, the end, where copies of a superblock are, and pieces spread evenly over the device.
//
// If expected is given, what is there is compared with what a format writes to a file of the device's size.
func (c *content) scan(ctx context.Context, d device, expected *os.File) error {
	f, err := os.Open(d.path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	c.zeros, c.random = true, true
	var mu sync.Mutex
	reads, ctx := errgroup.WithContext(ctx)
	reads.SetLimit(parallel)
	for _, p := range places(d.size) {
		reads.Go(func() error {
			there, beside := make([]byte, p.size), make([]byte, p.size)
			if _, err := f.ReadAt(there, p.at); err != nil && !errors.Is(err, io.EOF) {
				return d.readError(p.at, err)
			}
			if expected != nil {
				if _, err := expected.ReadAt(beside, p.at); err != nil && !errors.Is(err, io.EOF) {
					return fmt.Errorf("read what a format writes: %w", err)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			switch {
			case p.at == 0: // no copy
			case isXFS(there):
				c.copies = append(c.copies, parseXFS(there).uuid)
			case isExt(there):
				c.copies = append(c.copies, parseExt(there).uuid)
			}
			c.note(there, beside)
			return ctx.Err()
		})
	}
	return reads.Wait()
}

// note notes how some bytes look, and whether there are any where others that are to be there are zeros.
func (c *content) note(there, expected []byte) {
	for p := range slices.Chunk(there, piece) {
		c.zeros = c.zeros && isZero(p)
		c.random = c.random && isRandom(p)
	}
	for at := 0; at < len(there); at += sector {
		c.elsewhere = c.elsewhere || isZero(expected[at:at+sector]) && !isZero(there[at:at+sector])
	}
}

// place is some bytes of a device.
type place struct {
	at   int64
	size int
}

// places returns where a device of a size is looked at, but for its format mark.
func places(size int64) (all []place) {
	const step = 1 << 20
	for at := int64(0); at < min(headSize, size-tailSize); at += step {
		all = append(all, place{at, step})
	}
	end := size - markFromEnd
	all = append(all, place{size - tailSize, tailSize - markFromEnd}, place{end + markSize, markFromEnd - markSize})
	for i := range int64(samples) {
		if at := size / samples * i / piece * piece; at >= headSize && at < size-tailSize {
			all = append(all, place{at, piece})
		}
	}
	for _, at := range superblockCopies(size) {
		if at+piece <= size-tailSize {
			all = append(all, place{at, piece})
		}
	}
	return all
}

// isZero says whether bytes are all zero.
func isZero(content []byte) bool { return bytes.Count(content, []byte{0}) == len(content) }

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

// superblockCopies returns where mkfs puts copies of a superblock: ext at the second block group, for each size of its blocks and
// clusters; xfs at the second of its allocation groups at the least.
func superblockCopies(size int64) []int64 {
	all := allocationGroups(size)
	for _, block := range []int64{1 << 10, 2 << 10, 4 << 10} {
		first := int64(0)
		if block == 1<<10 {
			first = block
		}
		for clusters := int64(1); clusters <= 128; clusters *= 2 {
			all = append(all, 8*block*block*clusters+first)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// allocationGroups returns where xfs can have an allocation group (xfsprogs,
// calc_default_ag_geometry, calc_concurrency_ag_geometry): at equal parts of a disk, as many as four or as there are processors, at
// the second quarter of whatever whole size a disk had before it grew, and on a disk of 4 TiB or more every TiB less a block.
func allocationGroups(size int64) (all []int64) {
	const (
		block   = 4 << 10
		tib     = int64(1) << 40
		quarter = disk.BytesPerGiB / 4 // of the smallest disk
		most    = 256                  // processors
	)
	for parts := int64(2); parts <= most; parts++ {
		all = append(all, size/block/parts*block, (size/block+parts-1)/parts*block)
	}
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

// run runs a program to its end, whatever becomes of the caller, and returns its output. The error has how all that it says begins and
// ends.
func run(input, program string, args ...string) ([]byte, error) {
	command := exec.Command(program, args...)
	var said bytes.Buffer
	command.Stdin, command.Stderr = strings.NewReader(input), &said
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(command.Args, " "), err, brief(append(out, said.Bytes()...)))
	}
	return out, nil
}

// exitCode is how a program ended, if the error says so.
func exitCode(err error) int {
	exit := (*exec.ExitError)(nil)
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

// oneLine puts what a program says into one line.
func oneLine(output string) string { return strings.Join(strings.Fields(output), " ") }

// brief puts what a program says into one line, and leaves the middle of a long text out.
func brief(output []byte) string {
	const end = 200
	text := oneLine(string(output))
	if len(text) <= 2*end {
		return text
	}
	return strings.ToValidUTF8(text[:end], "") + " ... " + strings.ToValidUTF8(text[len(text)-end:], "")
}
