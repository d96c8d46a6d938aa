package ecs

import (
	"context"
	"slices"

	sdkecs "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

var describeAvailableResource = action{name: "DescribeAvailableResource", timeout: readTimeout}

// soldOutStates are the values of Status and StatusCategory that say that there
// is nothing to be had.
var soldOutStates = []string{"SoldOut", "WithoutStock", "ClosedWithoutStock"}

// Offers reads which disks the zones of the region have to give just now, or
// with regional which disks the region has that belong to no zone (ECS API,
// DescribeAvailableResource).
func (c *Client) Offers(ctx context.Context, regional bool) (disk.Offers, error) {
	reply, err := send(ctx, c, describeAvailableResource, func() (request, *sdkecs.DescribeAvailableResourceResponse) {
		r := sdkecs.CreateDescribeAvailableResourceRequest()
		r.ResourceType = "disk"
		r.DestinationResource = "DataDisk"
		r.InstanceChargeType = "PostPaid"
		if regional {
			r.Scope = "Region"
		}
		return r, sdkecs.CreateDescribeAvailableResourceResponse()
	}, func(reply *sdkecs.DescribeAvailableResourceResponse) bool { return reply.RequestId != "" })
	if err != nil {
		return nil, err
	}
	offers := disk.Offers{}
	for _, zone := range reply.AvailableZones.AvailableZone {
		id := disk.Zone(zone.ZoneId)
		if (id == "") != regional {
			continue
		}
		offers[id] = onOffer(zone)
	}
	return offers, nil
}

// onOffer returns the categories that a zone has in stock.
func onOffer(zone sdkecs.AvailableZone) map[disk.Category]disk.Range {
	offered := make(map[disk.Category]disk.Range)
	for _, resource := range zone.AvailableResources.AvailableResource {
		if resource.Type != "DataDisk" {
			continue
		}
		for _, r := range resource.SupportedResources.SupportedResource {
			if slices.Contains(soldOutStates, r.Status) || slices.Contains(soldOutStates, r.StatusCategory) {
				continue
			}
			offered[disk.Category(r.Value)] = disk.Range{Least: disk.GiB(r.Min), Most: disk.GiB(r.Max)}
		}
	}
	return offered
}
