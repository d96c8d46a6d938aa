package ecs

import (
	"cmp"
	"context"
	"slices"

	sdkecs "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

// largestPage is the most disks that one page of DescribeDisks holds, if the
// pages are asked for by token.
const largestPage = 500

// List reads every data disk of the region, page by page, and returns them
// sorted by ID. Disks that come and go meanwhile may be missing; every other
// one is there, once.
func (c *Client) List(ctx context.Context) ([]disk.Disk, error) {
	all, err := c.describeAll(ctx, func(r *sdkecs.DescribeDisksRequest) {
		r.DiskType = "data"
		r.MaxResults = integer(largestPage)
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b disk.Disk) int { return cmp.Compare(a.ID, b.ID) })
	return slices.CompactFunc(all, func(a, b disk.Disk) bool { return a.ID == b.ID }), nil
}
