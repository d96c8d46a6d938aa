package ecs

import (
	"context"
	"errors"
	"slices"

	sdkecs "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs/transport"
)

// soldOutStates are the values of Status and StatusCategory that say that there
// is nothing to be had.
var soldOutStates = []string{"SoldOut", "WithoutStock", "ClosedWithoutStock"}

var errNoOffer = errors.New("an empty answer: ECS names no disk of any zone, not even one that is sold out, which says nothing of its stock; " +
	"is ecs:DescribeAvailableResource allowed?")

// Offers reads which disks the zones of the region have to give just now, or
// with regional which disks the region has that belong to no zone (ECS API,
// DescribeAvailableResource). Unreachable: ECS names none at all, not even what is
// sold out, which is no answer.
func (c *Client) Offers(ctx context.Context, regional bool) (disk.Offers, error) {
	all, err := c.onSale(ctx, regional)
	if err != nil {
		return nil, err
	}
	offers := disk.Offers{}
	for zone, resources := range all {
		offers[zone] = make(map[disk.Category]disk.Range)
		for _, r := range resources {
			if !slices.Contains(soldOutStates, r.Status) && !slices.Contains(soldOutStates, r.StatusCategory) {
				offers[zone][disk.Category(r.Value)] = disk.Range{Least: disk.GiB(r.Min), Most: disk.GiB(r.Max)}
			}
		}
	}
	return offers, nil
}

// onSale reads the data disks of the zones, or of the region, sold out or not. A
// region may have no regional disks, but then it has others.
func (c *Client) onSale(ctx context.Context, regional bool) (map[disk.Zone][]sdkecs.SupportedResource, error) {
	reply, err := c.available(ctx, "", regional)
	if err != nil {
		return nil, err
	}
	all := dataDisks(reply, regional)
	for _, resources := range all {
		if len(resources) > 0 {
			return all, nil
		}
	}
	if regional {
		_, err := c.onSale(ctx, false)
		return all, err
	}
	c.shared.metrics.countEmpty(transport.DescribeAvailableResource.Name)
	return nil, &disk.Error{Op: transport.DescribeAvailableResource.Name, Kind: disk.Unreachable, RequestID: reply.RequestId, Err: errNoOffer}
}

// available reads which data disks there are for the instances of a type, or
// for any instance if the type is empty, in all zones at once.
func (c *Client) available(ctx context.Context, t disk.InstanceType, regional bool) (*sdkecs.DescribeAvailableResourceResponse, error) {
	return transport.DescribeAvailableResource.Send(ctx, c.session, func(r *sdkecs.DescribeAvailableResourceRequest) {
		r.ResourceType = "disk"
		r.DestinationResource = "DataDisk"
		r.InstanceChargeType = "PostPaid"
		r.InstanceType = string(t)
		if regional {
			r.Scope = "Region"
		}
	})
}

// dataDisks returns the data disks that a reply names, by zone; those of the
// region stand under the empty zone.
func dataDisks(reply *sdkecs.DescribeAvailableResourceResponse, regional bool) map[disk.Zone][]sdkecs.SupportedResource {
	all := make(map[disk.Zone][]sdkecs.SupportedResource)
	for _, zone := range reply.AvailableZones.AvailableZone {
		id := disk.Zone(zone.ZoneId)
		if (id == "") != regional {
			continue
		}
		soldOut := slices.Contains(soldOutStates, zone.Status) || slices.Contains(soldOutStates, zone.StatusCategory)
		var disks []sdkecs.SupportedResource
		for _, resource := range zone.AvailableResources.AvailableResource {
			if resource.Type == "DataDisk" {
				disks = append(disks, resource.SupportedResources.SupportedResource...)
			}
		}
		for i := range disks {
			if soldOut { // whatever its disks say
				disks[i].Status = soldOutStates[0]
			}
		}
		all[id] = disks
	}
	return all
}
