package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

const (
	sector   = 512
	piece    = 4 << 10
	headSize = 8 << 20 // looked at whole at the beginning: a first partition and its file system's first blocks are in it
	tailSize = 1 << 20 // and at the end
	samples  = 1024    // pieces looked at in between
	parallel = 16      // reads at a time
)

// isUnreadable says whether places of a device can't be read, among those that are spread over it.
func (d device) isUnreadable() bool {
	return errors.Is(new(content).scan(context.Background(), d, nil), unix.EIO)
}

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
