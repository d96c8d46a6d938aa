package ecs

import (
	"context"
	"errors"
	"slices"

	sdkecs "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/transport"
)

// Tag sets tags of a disk, over others of the same keys. Reads may show them a
// moment later.
func (c *Client) Tag(ctx context.Context, id disk.ID, tags disk.Tags) error {
	switch {
	case !possibleID.MatchString(string(id)):
		return notAnID(id)
	case len(tags) == 0:
		return nil
	}
	return c.tag(ctx, []disk.ID{id}, tags)
}

// TagAll is Tag of many disks, with a call for each fifty of them. Those before an
// error are tagged.
func (c *Client) TagAll(ctx context.Context, ids []disk.ID, tags disk.Tags) error {
	for some := range slices.Chunk(ids, disk.MostTagged) {
		if err := c.tag(ctx, some, tags); err != nil {
			return err
		}
	}
	return nil
}

// tag is Tag of some disks, as many as one call takes.
func (c *Client) tag(ctx context.Context, ids []disk.ID, tags disk.Tags) error {
	_, err := transport.TagResources.Send(ctx, c.session, func(r *sdkecs.TagResourcesRequest) {
		r.ResourceType = "disk"
		r.ResourceId = list(ids...)
		setTags(r, tags)
	})
	for _, id := range ids {
		c.recent.Changed(id)
	}
	return ofDisk(ids[0], err)
}

// Untag removes tags from a disk. Removal of an absent tag isn't an error.
func (c *Client) Untag(ctx context.Context, id disk.ID, keys []string) error {
	switch {
	case !possibleID.MatchString(string(id)):
		return notAnID(id)
	case len(keys) == 0:
		return nil
	}
	defer c.recent.Changed(id)
	return ofDisk(id, c.untag(ctx, "disk", string(id), keys))
}

// askGone returns nil if ECS says that it doesn't know a resource that no read shows. Pending: it does. Denied: the credentials may not ask.
func (c *Client) askGone(ctx context.Context, kind, id string) error {
	switch err := c.untag(ctx, kind, id, []string{disk.NeverSetTag}); {
	case err == nil:
		return disk.Errorf(disk.Pending, "ECS knows %s %s and doesn't show it", kind, id)
	case disk.KindOf(err) != disk.NotFound:
		return err
	}
	return nil
}

// untag removes tags from a resource of a type. NotFound: ECS doesn't know it.
func (c *Client) untag(ctx context.Context, kind, id string, keys []string) error {
	_, err := transport.UntagResources.Send(ctx, c.session, func(r *sdkecs.UntagResourcesRequest) {
		r.ResourceType = kind
		r.ResourceId = list(id)
		r.TagKey = list(keys...)
	})
	return err
}

// ofDisk says of which disk an error is.
func ofDisk(id disk.ID, err error) error {
	var e *disk.Error
	if errors.As(err, &e) && e.Disk == "" {
		e.Disk = id
	}
	return err
}
