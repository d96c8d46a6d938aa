package listing

import (
	"context"
	"sync"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// keptFor is for how long the pages of a list may come from one read of all disks.
const keptFor = time.Minute

// Lister reads all disks.
type Lister interface {
	// List returns every data disk of the region, each once and sorted by ID.
	List(ctx context.Context) ([]disk.Disk, error)
}

// Disks keeps what the last read of all disks of the region showed, so that a
// list of many pages doesn't cost one for every page.
type Disks struct {
	source Lister
	onRead func([]disk.Disk, time.Time)

	mu    sync.Mutex
	known []disk.Disk
	at    time.Time
}

// NewDisks returns Disks that are read from the source. onRead is told what each
// read showed, and when.
func NewDisks(source Lister, onRead func([]disk.Disk, time.Time)) *Disks {
	return &Disks{source: source, onRead: onRead}
}

// Read returns all disks, and when they were so: for the first page as they are,
// for a later one perhaps as the last read showed them.
func (d *Disks) Read(ctx context.Context, continued bool) ([]disk.Disk, time.Time, error) {
	d.mu.Lock()
	known, at := d.known, d.at
	d.mu.Unlock()
	if continued && time.Since(at) < keptFor {
		return known, at, nil
	}
	at = time.Now()
	all, err := d.source.List(ctx)
	if err != nil {
		return nil, at, err
	}
	d.onRead(all, at)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known, d.at = all, at
	return all, at, nil
}
