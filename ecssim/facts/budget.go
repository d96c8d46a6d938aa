package facts

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"
)

// Budget bounds what a Client makes. A disk is made only if its size times the
// longest time that it can live fits, so that GiBMinutes is kept whatever
// happens; the zero values allow nothing.
type Budget struct {
	Disks      int // over all
	AtATime    int // disks that exist at the same time
	Snapshots  int // over all
	GiBMinutes float64

	mu        sync.Mutex
	disks     int
	snapshots int
	spent     float64 // GiB-minutes of disks that are gone
	open      map[string]openDisk
	lost      bool
	pending   *openDisk // a call that makes a disk and has no reply yet
}

// openDisk is a disk that exists, or may.
type openDisk struct {
	gib         int       // with one more than asked for, which facts let disks grow by
	made, until time.Time // until: when it is gone at the latest
}

func (d openDisk) cost(until time.Time) float64 { return float64(d.gib) * until.Sub(d.made).Minutes() }

// CleanUp is how long the removal of a fact's disks may take.
const CleanUp = 3 * time.Minute

// reserve makes room for what a request makes. A disk is gone CleanUp after
// the end of ctx. A nil Budget has no limits.
func (b *Budget) reserve(ctx context.Context, action string, pairs []string) error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if action != "CreateDisk" {
		if b.snapshots >= b.Snapshots {
			return fmt.Errorf("the limit of %d snapshots is reached", b.Snapshots)
		}
		b.snapshots++
		return nil
	}
	now := time.Now()
	ends, bounded := ctx.Deadline()
	disk := openDisk{gib: sizeOf(pairs) + 1, made: now, until: ends.Add(CleanUp)}
	switch {
	case !bounded:
		return fmt.Errorf("a disk has no time by which it is gone")
	case b.disks >= b.Disks:
		return fmt.Errorf("the limit of %d disks is reached", b.Disks)
	case len(b.open) >= b.AtATime:
		return fmt.Errorf("the limit of %d disks at a time is reached", b.AtATime)
	case b.committed()+disk.cost(disk.until) > b.GiBMinutes:
		return fmt.Errorf("a disk of %d GiB does not fit into what is left of %.0f GiB-minutes", disk.gib, b.GiBMinutes)
	}
	b.disks++
	if b.lost = b.lost || b.pending != nil; b.pending != nil { // the reply to that call was lost: its disk may exist
		b.put(fmt.Sprintf("unknown %d", b.disks), *b.pending)
	}
	b.pending = &disk
	return nil
}

// committed is what has been spent and what may still be.
func (b *Budget) committed() float64 {
	sum := b.spent
	for _, d := range b.open {
		sum += d.cost(d.until)
	}
	if b.pending != nil {
		sum += b.pending.cost(b.pending.until)
	}
	return sum
}

// settle notes the reply to a request that reserve let pass: the ID of what it
// made, or empty.
func (b *Budget) settle(action, id string) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case action != "CreateDisk" && id == "":
		b.snapshots--
	case action != "CreateDisk":
	case id == "":
		b.disks--
		b.pending = nil
	default:
		b.put(id, *b.pending)
		b.pending = nil
	}
}

func (b *Budget) put(id string, d openDisk) {
	if b.open == nil {
		b.open = map[string]openDisk{}
	}
	b.open[id] = d
}

// gone notes that a disk was deleted.
func (b *Budget) gone(id string) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if d, ok := b.open[id]; ok {
		b.spent += d.cost(time.Now())
		delete(b.open, id)
	}
}

// Lost tells whether the reply to a call that makes a disk was lost, so that
// there may be a disk that nobody knows the ID of.
func (b *Budget) Lost() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lost || b.pending != nil
}

// Used says how many disks and snapshots were made, and what they came to in
// GiB-minutes until now.
func (b *Budget) Used() (disks, snapshots int, gibMinutes float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	gibMinutes = b.spent
	for _, d := range b.open {
		gibMinutes += d.cost(time.Now())
	}
	return b.disks, b.snapshots, gibMinutes
}

// sizeOf is the size in GiB that a CreateDisk asks for; the last value counts,
// and what is no number is taken for the ordinary 20.
func sizeOf(pairs []string) int {
	size := 20
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i] != "Size" {
			continue
		}
		size = 20
		if n, err := strconv.Atoi(pairs[i+1]); err == nil && n > 0 {
			size = n
		}
	}
	return size
}
