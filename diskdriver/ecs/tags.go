package ecs

import (
	"context"
	"errors"
	"slices"

	sdkecs "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/batch"
	"github.com/topodisk/topodisk/diskdriver/ecs/transport"
)

// tagging changes the tags of disks.
type tagging struct {
	session *transport.Session
	recent  *batch.Recent
}

// Tag sets tags of a disk, over others of the same keys. Reads may show them a
// moment later.
func (t *tagging) Tag(ctx context.Context, id disk.ID, tags disk.Tags) error {
	switch {
	case !possibleID.MatchString(string(id)):
		return notAnID(id)
	case len(tags) == 0:
		return nil
	}
	defer t.recent.Changed(id)
	_, err := transport.TagResources.Send(ctx, t.session, func(r *sdkecs.TagResourcesRequest) {
		r.ResourceType = "disk"
		r.ResourceId = &[]string{string(id)}
		r.Tag = tagsToECS(tags, func(key, value string) sdkecs.TagResourcesTag { return sdkecs.TagResourcesTag{Key: key, Value: value} })
	})
	return ofDisk(id, err)
}

// TagAll is Tag of many disks, with a call for each fifty of them. Those before an
// error are tagged.
func (t *tagging) TagAll(ctx context.Context, ids []disk.ID, tags disk.Tags) error {
	for some := range slices.Chunk(ids, disk.MostTagged) {
		_, err := transport.TagResources.Send(ctx, t.session, func(r *sdkecs.TagResourcesRequest) {
			r.ResourceType = "disk"
			list := texts(some)
			r.ResourceId = &list
			r.Tag = tagsToECS(tags, func(key, value string) sdkecs.TagResourcesTag { return sdkecs.TagResourcesTag{Key: key, Value: value} })
		})
		for _, id := range some {
			t.recent.Changed(id)
		}
		if err != nil {
			return ofDisk(some[0], err)
		}
	}
	return nil
}

// Untag removes tags from a disk. Removal of an absent tag isn't an error.
func (t *tagging) Untag(ctx context.Context, id disk.ID, keys []string) error {
	switch {
	case !possibleID.MatchString(string(id)):
		return notAnID(id)
	case len(keys) == 0:
		return nil
	}
	defer t.recent.Changed(id)
	return ofDisk(id, untag(ctx, t.session, "disk", string(id), keys))
}

// askGone returns nil if ECS says that it doesn't know a resource that no read shows. Pending: it does. Denied: the credentials may not ask.
func askGone(ctx context.Context, s *transport.Session, kind, id string) error {
	switch err := untag(ctx, s, kind, id, []string{disk.NeverSetTag}); {
	case err == nil:
		return disk.Errorf(disk.Pending, "ECS knows %s %s and doesn't show it", kind, id)
	case disk.KindOf(err) != disk.NotFound:
		return err
	}
	return nil
}

// untag removes tags from a resource of a type. NotFound: ECS doesn't know it.
func untag(ctx context.Context, s *transport.Session, kind, id string, keys []string) error {
	_, err := transport.UntagResources.Send(ctx, s, func(r *sdkecs.UntagResourcesRequest) {
		r.ResourceType = kind
		r.ResourceId = &[]string{id}
		list := slices.Clone(keys)
		r.TagKey = &list
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
