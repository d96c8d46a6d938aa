package nodefacts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// How long what ECS says of an instance type is good, and how long after a
// failure it is asked again: many nodes share a type.
const (
	typeLasts = time.Hour
	typePause = time.Minute
)

// anyType stands for what a zone has for any instance.
const anyType disk.InstanceType = ""

// typeCache is what ECS has said of instance types. It is used by one goroutine.
type typeCache struct {
	cloud      Cloud
	disks      map[disk.InstanceType]int
	categories map[categoryQuery]map[disk.Zone][]disk.Category
	nextDisks  map[disk.InstanceType]time.Time // ECS isn't asked before
	nextList   map[categoryQuery]time.Time
}

// categoryQuery is what one answer on categories is about.
type categoryQuery struct {
	instance disk.InstanceType
	regional bool
}

func newTypeCache(cloud Cloud) *typeCache {
	return &typeCache{
		cloud:      cloud,
		disks:      make(map[disk.InstanceType]int),
		categories: make(map[categoryQuery]map[disk.Zone][]disk.Category),
		nextDisks:  make(map[disk.InstanceType]time.Time),
		nextList:   make(map[categoryQuery]time.Time),
	}
}

// refresh asks ECS for what isn't known of the types, or was read long ago. What
// it doesn't get stays as it was; the error says what that is.
func (c *typeCache) refresh(ctx context.Context, types []disk.InstanceType) error {
	if len(types) == 0 {
		return nil
	}
	errs := []error{c.refreshDisks(ctx, types)}
	for _, t := range append([]disk.InstanceType{anyType}, types...) {
		for _, regional := range []bool{false, true} {
			errs = append(errs, c.refreshCategories(ctx, categoryQuery{t, regional}))
		}
	}
	if errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil }); len(errs) > 1 {
		return fmt.Errorf("%w (and %d questions more)", errs[0], len(errs)-1)
	}
	return errors.Join(errs...)
}

func (c *typeCache) refreshDisks(ctx context.Context, types []disk.InstanceType) error {
	now := time.Now()
	due := slices.DeleteFunc(slices.Clone(types), func(t disk.InstanceType) bool { return now.Before(c.nextDisks[t]) })
	if len(due) == 0 {
		return nil
	}
	limits, err := c.cloud.DataDisks(ctx, due)
	for _, t := range due {
		c.nextDisks[t] = now.Add(typePause)
		if n := limits[t]; n > 0 {
			c.disks[t], c.nextDisks[t] = n, now.Add(typeLasts)
		}
	}
	if err != nil {
		return fmt.Errorf("how many disks instances of %v can have: %w", due, err)
	}
	return nil
}

// refreshCategories reads one listing. An empty one says nothing: ECS answers
// so, too, if the type isn't sold just now, or isn't shown to these credentials.
func (c *typeCache) refreshCategories(ctx context.Context, l categoryQuery) error {
	now := time.Now()
	if now.Before(c.nextList[l]) {
		return nil
	}
	c.nextList[l] = now.Add(typePause)
	zones, err := c.cloud.Categories(ctx, l.instance, l.regional)
	if err != nil {
		return fmt.Errorf("which disks there are for instances of type %q: %w", l.instance, err)
	}
	c.nextList[l] = now.Add(typeLasts)
	if c.categories[l] == nil {
		c.categories[l] = make(map[disk.Zone][]disk.Category)
	}
	for zone, list := range zones {
		if len(list) > 0 {
			c.categories[l][zone] = list
		}
	}
	return nil
}

// instance returns what is known of the instances of a type in a zone. A category
// that the zone has for others, and not for them, is one that they refuse.
func (c *typeCache) instance(t disk.InstanceType, zone disk.Zone) disk.Instance {
	known := disk.Instance{Type: t, Zone: zone, DataDisks: c.disks[t]}
	for _, part := range []struct {
		zone     disk.Zone
		regional bool
	}{{zone, false}, {"", true}} {
		own := c.categories[categoryQuery{t, part.regional}][part.zone]
		if len(own) == 0 {
			continue
		}
		known.Takes = append(known.Takes, own...)
		for _, category := range c.categories[categoryQuery{anyType, part.regional}][part.zone] {
			if !slices.Contains(own, category) {
				known.Refuses = append(known.Refuses, category)
			}
		}
	}
	slices.Sort(known.Takes)
	slices.Sort(known.Refuses)
	return known
}
