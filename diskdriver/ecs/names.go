package ecs

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

const (
	// nameBatches is how many batches of names are read at a time; other names
	// wait, and share the next batch.
	nameBatches = 4
	// usualPages is how many pages a list of all disks is taken to have before
	// there was one.
	usualPages = 8
)

// names reads disks by the names of their volumes. Filters are ANDed, so one
// filtered call finds one name: a few names have a call each, and a crowd, as
// after a handover, shares a list of all disks once that takes fewer calls.
type names struct {
	one   func(ctx context.Context, name string) ([]disk.Disk, error)
	all   func(ctx context.Context) ([]disk.Disk, error)
	pages atomic.Int64 // of the last list of all disks; 0: there was none
}

// find returns the disks of each name.
func (n *names) find(ctx context.Context, wanted []string) (map[string][]disk.Disk, error) {
	pages := n.pages.Load()
	if pages == 0 {
		pages = usualPages
	}
	if int64(len(wanted)) > pages {
		return n.findAll(ctx)
	}
	var mu sync.Mutex
	var calls sync.WaitGroup
	byName := make(map[string][]disk.Disk, len(wanted))
	var failure error
	for _, name := range wanted {
		calls.Go(func() {
			found, err := n.one(ctx, name)
			mu.Lock()
			defer mu.Unlock()
			byName[name], failure = found, cmp.Or(failure, err)
		})
	}
	calls.Wait()
	return byName, failure
}

// findAll returns all disks by name.
func (n *names) findAll(ctx context.Context) (map[string][]disk.Disk, error) {
	all, err := n.all(ctx)
	if err != nil {
		return nil, err
	}
	n.pages.Store(int64(len(all)/largestPage + 1))
	byName := make(map[string][]disk.Disk, len(all))
	for _, d := range all {
		byName[d.Name] = append(byName[d.Name], d)
	}
	return byName, nil
}
