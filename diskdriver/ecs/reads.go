package ecs

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// largestBatch is how many IDs one DescribeDisks takes.
const largestBatch = 100

// How long a read waits for company: a moment if no batch left lately, else
// until a batch may leave again. Full batches leave at once.
const (
	gatherTime = 2 * time.Millisecond
	batchPause = 250 * time.Millisecond
)

// reads answers reads of single disks with shared calls.
type reads struct {
	describe  func(context.Context, []disk.ID) (map[disk.ID]disk.Disk, error)
	throttled func() bool

	mu      sync.Mutex
	next    *batch    // still takes IDs; nil if there is none
	left    time.Time // when the last batch left
	pending int       // batches that have left and have no answer
}

func newReads(describe func(context.Context, []disk.ID) (map[disk.ID]disk.Disk, error), throttled func() bool) *reads {
	return &reads{describe: describe, throttled: throttled}
}

// batch is one call to come, or under way, and those who wait for it.
type batch struct {
	ids     map[disk.ID]bool
	members int       // who still wait
	until   time.Time // the latest of their deadlines
	endless bool      // one of them has no deadline
	timer   *time.Timer
	gone    bool               // has left, or never will
	cancel  context.CancelFunc // set once the batch has left

	done  chan struct{} // closed when disks and err are set
	disks map[disk.ID]disk.Disk
	err   error
}

// get reads one disk. A failed call fails all who share it, and nobody here
// tries again: that would be a hundred calls for one.
func (r *reads) get(ctx context.Context, id disk.ID) (disk.Disk, error) {
	b := r.join(ctx, id)
	if err := r.await(ctx, b); err != nil {
		return disk.Disk{}, &disk.Error{Op: describeDisks.name, Disk: id, Kind: disk.KindOf(err), Err: err}
	}
	if b.err != nil {
		return disk.Disk{}, about(id, b.err)
	}
	d, ok := b.disks[id]
	if !ok {
		return disk.Disk{}, &disk.Error{Op: describeDisks.name, Disk: id, Kind: disk.NotFound, Err: errAbsent}
	}
	return d, nil
}

// join adds an ID to the next batch.
func (r *reads) join(ctx context.Context, id disk.ID) *batch {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.next
	if b == nil {
		b = &batch{ids: make(map[disk.ID]bool), done: make(chan struct{})}
		wait := max(gatherTime, time.Until(r.left.Add(batchPause)))
		b.timer = time.AfterFunc(wait, func() { r.depart(b) })
		r.next = b
	}
	b.ids[id] = true
	b.members++
	deadline, ok := ctx.Deadline()
	b.endless = b.endless || !ok
	if deadline.After(b.until) {
		b.until = deadline
	}
	if len(b.ids) == largestBatch {
		r.next = nil
		b.timer.Reset(0)
	}
	return b
}

// depart makes the call of a batch, for as long as anybody waits for it. While
// ECS throttles reads, a batch that isn't full waits for the one before it
// instead of asking for a call of its own.
func (r *reads) depart(b *batch) {
	r.mu.Lock()
	if b.gone {
		r.mu.Unlock()
		return
	}
	if r.pending > 0 && len(b.ids) < largestBatch && r.throttled() {
		b.timer.Reset(batchPause)
		r.mu.Unlock()
		return
	}
	b.gone = true
	if r.next == b {
		r.next = nil
	}
	if b.members == 0 {
		r.mu.Unlock()
		return
	}
	r.left = time.Now()
	r.pending++
	ctx, cancel := b.context()
	b.cancel = cancel
	ids := slices.Sorted(maps.Keys(b.ids))
	r.mu.Unlock()

	b.disks, b.err = r.describe(ctx, ids)
	cancel()
	close(b.done)
	r.mu.Lock()
	r.pending--
	r.mu.Unlock()
}

// context returns the context of the call: it ends with the last member's.
func (b *batch) context() (context.Context, context.CancelFunc) {
	if b.endless {
		return context.WithCancel(context.Background())
	}
	return context.WithDeadline(context.Background(), b.until)
}

// await waits for a batch. A member whose time ends while ECS throttles reads is
// told so in time to answer.
func (r *reads) await(ctx context.Context, b *batch) error {
	patient, cancel := patience(ctx)
	defer cancel()
	select {
	case <-b.done:
		return nil
	case <-patient.Done():
	}
	if !r.throttled() {
		select {
		case <-b.done:
			return nil
		case <-ctx.Done():
		}
	}
	r.quit(b)
	if r.throttled() {
		return disk.Errorf(disk.Throttled, "held back because ECS throttles %s", describeDisks.name)
	}
	return disk.Errorf(disk.Unreachable, "no answer in time: %w", ctx.Err())
}

// quit takes one member off a batch; the last one ends it.
func (r *reads) quit(b *batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b.members--
	if b.members == 0 && b.cancel != nil {
		b.cancel()
	}
}

// about returns a batch's error as that of one of its disks.
func about(id disk.ID, err error) error {
	e := &disk.Error{Op: describeDisks.name, Disk: id, Kind: disk.KindOf(err), Err: err}
	var shared *disk.Error
	if errors.As(err, &shared) {
		e.RequestID, e.Err = shared.RequestID, shared.Err
	}
	return e
}

var errAbsent = errors.New("ECS shows no such disk")
