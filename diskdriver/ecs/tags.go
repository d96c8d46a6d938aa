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
	if len(tags) == 0 {
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

// Untag removes tags from a disk. Removal of an absent tag isn't an error.
func (t *tagging) Untag(ctx context.Context, id disk.ID, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	defer t.recent.Changed(id)
	_, err := transport.UntagResources.Send(ctx, t.session, func(r *sdkecs.UntagResourcesRequest) {
		r.ResourceType = "disk"
		r.ResourceId = &[]string{string(id)}
		list := slices.Clone(keys)
		r.TagKey = &list
	})
	return ofDisk(id, err)
}

// ofDisk says of which disk an error is.
func ofDisk(id disk.ID, err error) error {
	var e *disk.Error
	if errors.As(err, &e) && e.Disk == "" {
		e.Disk = id
	}
	return err
}
