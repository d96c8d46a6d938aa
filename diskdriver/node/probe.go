package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sync/singleflight"
	"golang.org/x/sys/unix"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// answersWithin is how long a file system may take to say how it is. One that
// is sound answers in microseconds.
const answersWithin = 5 * time.Second

// measurement is what a mounted file system says of itself.
type measurement struct {
	stat     unix.Statfs_t
	numbers  error // of the numbers in stat
	contents error // of reading one entry of its root directory
	extent   extent
	extents  error // of the extent
}

// complaint says what is wrong with a file system; empty if nothing is.
func (m measurement) complaint() string {
	switch {
	case m.numbers != nil:
		return fmt.Sprintf("doesn't answer: %v", m.numbers)
	case m.contents != nil:
		return fmt.Sprintf("can't be read: %v", m.contents)
	}
	return ""
}

// probes measures file systems. The kernel keeps the thread that asks one whose
// disk hangs for as long as it hangs, so each is asked by one thread at a time,
// and whoever asks meanwhile waits for the same answer.
type probes struct {
	inFlight singleflight.Group
	extent   func(device uint64, at string) (extent, error)
}

// measure measures a mounted file system. No answer in time
// is Unreachable.
func (p *probes) measure(ctx context.Context, volume disk.ID, at mountPoint) (measurement, error) {
	answer := p.inFlight.DoChan(fmt.Sprintf("%s %d", volume, at.number), func() (any, error) {
		m := measureFileSystem(at.MountPoint)
		if m.complaint() == "" {
			m.extent, m.extents = p.extent(at.number, at.MountPoint)
		}
		return m, nil
	})
	limit := time.NewTimer(answersWithin)
	defer limit.Stop()
	select {
	case result := <-answer:
		m, ok := result.Val.(measurement)
		if !ok {
			return m, fmt.Errorf("measure the file system at %s: %w", at, result.Err)
		}
		return m, nil
	case <-ctx.Done():
		return measurement{}, ctx.Err()
	case <-limit.C:
		return measurement{}, &disk.Error{Disk: volume, Kind: disk.Unreachable, Err: fmt.Errorf("the file system at %s doesn't answer within %s; its disk may hang", at, answersWithin)}
	}
}

// measureFileSystem asks a file system how it is, and waits as long as it takes.
func measureFileSystem(at string) (m measurement) {
	m.numbers = unix.Statfs(at, &m.stat)
	dir, err := os.Open(at)
	if err != nil {
		m.contents = err
		return m
	}
	defer func() { _ = dir.Close() }()
	if _, err := dir.Readdirnames(1); !errors.Is(err, io.EOF) {
		m.contents = err
	}
	return m
}
