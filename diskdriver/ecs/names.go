package ecs

import (
	"cmp"
	"context"
	"sync"

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

// disksByName reads disks by the names of their volumes. Filters are ANDed, so one
// filtered call finds one name: a few names have a call each, and a crowd, as
// after a handover, shares a list of all disks once that takes fewer calls.
func (c *Client) disksByName(ctx context.Context, wanted []string) (map[string][]disk.Disk, error) {
	if int64(len(wanted)) > cmp.Or(c.namePages.Load(), usualPages) {
		return c.allByName(ctx)
	}
	var mu sync.Mutex
	var calls sync.WaitGroup
	byName := make(map[string][]disk.Disk, len(wanted))
	var failure error
	for _, name := range wanted {
		calls.Go(func() {
			found, err := c.describer.all(ctx, namedQuery(name, c.shared.clusterID))
			mu.Lock()
			defer mu.Unlock()
			byName[name], failure = found, cmp.Or(failure, err)
		})
	}
	calls.Wait()
	return byName, failure
}

// allByName returns all disks by the names of their volumes.
func (c *Client) allByName(ctx context.Context) (map[string][]disk.Disk, error) {
	all, err := c.List(ctx)
	if err != nil {
		return nil, err
	}
	c.namePages.Store(int64(len(all)/largestPage + 1))
	byName := make(map[string][]disk.Disk, len(all))
	for _, d := range all {
		byName[d.Name] = append(byName[d.Name], d)
	}
	return byName, nil
}
