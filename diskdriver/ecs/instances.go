package ecs

import (
	"context"
	"slices"

	sdkecs "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/transport"
)

// The most that one call is told of (ECS API, DescribeInstances and
// DescribeInstanceTypes).
const (
	mostInstances = 100
	mostTypes     = 10
)

// Instances reads the type and the zone of instances, a hundred with a call.
// One that the region doesn't have is not in the answer, nor is one that the
// credentials may not see.
func (c *Client) Instances(ctx context.Context, ids []disk.InstanceID) (map[disk.InstanceID]disk.Instance, error) {
	all, err := c.describeInstances(ctx, ids)
	if err != nil {
		return nil, err
	}
	found := make(map[disk.InstanceID]disk.Instance, len(ids))
	for _, i := range all {
		found[disk.InstanceID(i.InstanceId)] = disk.Instance{Type: disk.InstanceType(i.InstanceType), Zone: disk.Zone(i.ZoneId)}
	}
	return found, nil
}

// describeInstances reads instances, a hundred with a call.
func (c *Client) describeInstances(ctx context.Context, ids []disk.InstanceID) ([]sdkecs.Instance, error) {
	var all []sdkecs.Instance
	for some := range slices.Chunk(ids, mostInstances) {
		reply, err := transport.DescribeInstances.Send(ctx, c.session, func(r *sdkecs.DescribeInstancesRequest) {
			r.InstanceIds = jsonList(some)
			r.PageSize = integer(mostInstances)
		})
		if err != nil {
			return nil, err
		}
		all = append(all, reply.Instances.Instance...)
	}
	return all, nil
}

// DataDisks reads how many disks the instances of each type can have besides
// their system disk, ten types with a call. A type that ECS doesn't know is not
// in the answer.
func (c *Client) DataDisks(ctx context.Context, types []disk.InstanceType) (map[disk.InstanceType]int, error) {
	limits := make(map[disk.InstanceType]int, len(types))
	for some := range slices.Chunk(types, mostTypes) {
		reply, err := transport.DescribeInstanceTypes.Send(ctx, c.session, func(r *sdkecs.DescribeInstanceTypesRequest) { r.InstanceTypes = list(some...) })
		if err != nil {
			return nil, err
		}
		for _, t := range reply.InstanceTypes.InstanceType {
			if t.DiskQuantity > 0 { // cloud disks of an instance, its system disk among them
				limits[disk.InstanceType(t.InstanceTypeId)] = t.DiskQuantity - 1
			}
		}
	}
	return limits, nil
}

// Categories reads which categories of disks each zone has for the instances
// of a type, or for any instance if the type is empty; with regional those
// that the region has, under the empty zone. What is sold out just now is among
// them, for there may be disks of it. What is not in the answer is not known.
func (c *Client) Categories(ctx context.Context, t disk.InstanceType, regional bool) (map[disk.Zone][]disk.Category, error) {
	reply, err := c.available(ctx, t, regional)
	if err != nil {
		return nil, err
	}
	all := make(map[disk.Zone][]disk.Category)
	for zone, resources := range dataDisks(reply, regional) {
		for _, r := range resources {
			all[zone] = append(all[zone], disk.Category(r.Value))
		}
	}
	return all, nil
}
