package ecs

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/batch"
	"github.com/topodisk/topodisk/diskdriver/ecs/transport"
)

const (
	// mostLookups is how many volume names are looked for at a time by calls of
	// their own. One filtered call finds one name, for filters are ANDed.
	mostLookups = 4
	// usualPages is how many pages a list of all disks is taken to have before
	// there was one.
	usualPages = 8
)

// names looks for disks by the names of their volumes. A few names have a call
// each; of a crowd, as after a handover, those that wait share a list of all
// disks once that costs fewer calls.
type names struct {
	alone func(ctx context.Context, name string) ([]disk.Disk, error)
	list  func(ctx context.Context) ([]disk.Disk, error)

	mu      sync.Mutex
	waiting []*lookup
	flying  int // calls, or lists
	pages   int // of the last list; 0: there was none
}

// lookup is a name that waits for its turn.
type lookup struct {
	name    string
	until   time.Time // zero: for ever
	granted chan grant
}

// grant is an answer, or the right to make a call.
type grant struct {
	alone bool
	disks []disk.Disk
	err   error
}

// get returns the disks that carry a name.
func (n *names) get(ctx context.Context, name string) ([]disk.Disk, error) {
	l := n.join(ctx, name)
	select {
	case t := <-l.granted:
		if !t.alone {
			return t.disks, t.err
		}
		defer n.land()
		return n.alone(ctx, name)
	case <-ctx.Done():
		n.quit(l)
		return nil, &disk.Error{Op: transport.DescribeDisks.Name, Kind: disk.Unreachable, Err: ctx.Err()}
	}
}

func (n *names) join(ctx context.Context, name string) *lookup {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := &lookup{name: name, granted: make(chan grant, 1)}
	l.until, _ = ctx.Deadline()
	n.waiting = append(n.waiting, l)
	n.next()
	return l
}

// quit takes a question back.
func (n *names) quit(l *lookup) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if i := slices.Index(n.waiting, l); i >= 0 {
		n.waiting = slices.Delete(n.waiting, i, i+1)
		return
	}
	select {
	case t := <-l.granted:
		if t.alone {
			n.flying--
			n.next()
		}
	default: // a list will answer nobody
	}
}

// land lets others have their turn after a call.
func (n *names) land() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.flying--
	n.next()
}

// next gives turns while there are any. Those who wait share a list if it has
// fewer pages than they are.
func (n *names) next() {
	for len(n.waiting) > 0 && n.flying < mostLookups {
		n.flying++
		if len(n.waiting) > cmp.Or(n.pages, usualPages) {
			shared := n.waiting
			n.waiting = nil
			go n.share(shared)
			return
		}
		n.waiting[0].granted <- grant{alone: true}
		n.waiting = n.waiting[1:]
	}
}

// share answers lookups with one list.
func (n *names) share(all []*lookup) {
	ctx, cancel := batch.UntilLast(all, func(l *lookup) time.Time { return l.until })
	defer cancel()
	disks, err := n.list(ctx)
	byName := make(map[string][]disk.Disk, len(disks))
	for _, d := range disks {
		byName[d.Name] = append(byName[d.Name], d)
	}
	for _, l := range all {
		l.granted <- grant{disks: slices.Clone(byName[l.name]), err: err}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil {
		n.pages = (len(disks) + largestPage) / largestPage
	}
	n.flying--
	n.next()
}
