package node

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// The defaults of BlankCheck.
const (
	DefaultBlankCheckLimit = 100 * disk.BytesPerGiB
	defaultBlankCheckRate  = 256 << 20
)

// longestCheck is how long a call waits for a check, if it has the time: the kubelet gives it two minutes.
const longestCheck = 2 * time.Minute

// BlankCheck bounds the check that every byte of a disk is zero, which lets a disk be formatted whose history doesn't.
type BlankCheck struct {
	Limit int64 // bytes of the largest disk that is read; 0: none is
	Rate  int64 // bytes a second at most; 0 stands for 256 MiB
}

// blankChecks read whole disks in the background, for the next call to go on with.
type blankChecks struct {
	BlankCheck
	mu      sync.Mutex
	running map[string]*blankCheck // by serial number
}

// blankCheck is one disk that is read from its beginning to its end.
type blankCheck struct {
	device   device
	attached string // when the disk was attached: what was read before says nothing of it
	stop     context.CancelFunc
	stopped  bool         // stop was called
	done     atomic.Int64 // bytes that are known to be zero
	ended    chan struct{}
	err      error // once it has ended; nil if all is zero
}

// isBlank says whether every byte of a disk is zero. Pending: it is being read, and the same call later goes on with that. Blocked: it
// is too large to be read, can't be read or holds something.
func (b *blankChecks) isBlank(ctx context.Context, u volumeUse, d device) error {
	const why = "the disk was attached before, or the driver didn't make it empty, so "
	if d.size > b.Limit {
		return u.blockedError(why+"it may hold data though it looks blank; "+
			"disks of at most %d GiB are read to their end to make sure (--blank-check-limit), and this one has %d GiB; "+
			"if it was never used, make a file system on it by hand, or make a new volume; %s", b.Limit/disk.BytesPerGiB, d.size/disk.BytesPerGiB, untouched)
	}
	check, err := b.begin(ctx, u, d)
	if err != nil {
		return err
	}
	err = poll(ctx, longestCheck, func() (bool, error) {
		select {
		case <-check.ended:
			return true, check.err
		default:
			return false, u.errorf(disk.Pending, why+"all of it is read before it is formatted; %d of %d MiB are zeros so far", check.done.Load()>>20, d.size>>20)
		}
	})
	if disk.KindOf(err) != disk.Pending && ctx.Err() == nil {
		b.drop(u.serial, check)
	}
	return err
}

// begin begins to read a disk, or returns the check that has begun in the same attachment of it. Another one ends first.
func (b *blankChecks) begin(ctx context.Context, u volumeUse, d device) (*blankCheck, error) {
	for {
		if check, fits := b.current(u, d); fits {
			return check, nil
		}
		if err := b.forget(ctx, u.volume, u.serial); err != nil {
			return nil, err
		}
	}
}

// current returns the check of a disk, which it begins if there is none, and says whether it is one of this attachment. If it isn't known
// when that began, only one that goes on is: it holds the device.
func (b *blankChecks) current(u volumeUse, d device) (check *blankCheck, fits bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if check = b.running[u.serial]; check != nil {
		return check, check.device == d && check.attached == u.attached && !check.stopped && (u.attached != "" || !check.hasEnded())
	}
	ctx, stop := context.WithCancel(context.Background())
	check = &blankCheck{device: d, attached: u.attached, stop: stop, ended: make(chan struct{})}
	b.running[u.serial] = check
	rate := cmp.Or(b.Rate, defaultBlankCheckRate)
	go func() {
		defer close(check.ended)
		check.err = check.run(ctx, rate)
	}()
	return check, true
}

// forget ends the check of a disk, if there is one, and waits until the device is let go. A check that doesn't end is remembered, for the
// device is held for as long.
func (b *blankChecks) forget(ctx context.Context, volume disk.ID, serial string) error {
	check := b.halt(serial)
	if check == nil {
		return nil
	}
	err := poll(ctx, findTimeout, func() (bool, error) {
		select {
		case <-check.ended:
			return true, nil
		default:
			return false, volumeErrorf(volume, disk.InUse, "%s is being read, to see whether it is blank, and doesn't answer, so it is in use until it does; "+
				"see the kernel's log (dmesg) and the disk's events in ECS", check.device.path)
		}
	})
	if err == nil {
		b.drop(serial, check)
	}
	return err
}

// hasEnded says whether the disk was read to its end, or is not read any more.
func (c *blankCheck) hasEnded() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

// halt tells the check of a disk to end, and returns it; nil if there is none.
func (b *blankChecks) halt(serial string) *blankCheck {
	b.mu.Lock()
	defer b.mu.Unlock()
	check := b.running[serial]
	if check != nil {
		check.stop()
		check.stopped = true
	}
	return check
}

// drop forgets a check that has ended.
func (b *blankChecks) drop(serial string, check *blankCheck) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running[serial] == check {
		delete(b.running, serial)
	}
	check.stop()
}

// run reads the device past the page cache, at a rate in bytes a second.
func (c *blankCheck) run(ctx context.Context, rate int64) error {
	f, err := os.OpenFile(c.device.path, os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	const chunk = 1 << 20
	pause := time.NewTicker(max(time.Second*chunk/time.Duration(rate), time.Microsecond))
	defer pause.Stop()
	content, err := unix.Mmap(-1, 0, chunk, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // aligned, as O_DIRECT needs it
	if err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(content) }()
	for at := int64(0); at < c.device.size; at += chunk {
		n, err := f.ReadAt(content, at)
		switch {
		case err != nil && !errors.Is(err, io.EOF):
			return c.device.readError(at, err)
		case !isZero(content[:n]):
			return disk.Errorf(disk.Blocked, "the disk has no file system that is known, and holds data, the first of it in the MiB at byte %d; restore a snapshot, or use it as a block volume; %s", at, untouched)
		}
		c.done.Store(at + int64(n))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-pause.C:
		}
	}
	return nil
}
