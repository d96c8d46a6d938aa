package actions

import (
	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

var describeZonesAction = Action{
	Name:     "DescribeZones",
	required: []string{"RegionId"},
	optional: []string{"Verbose", "InstanceChargeType", "SpotStrategy", "AcceptLanguage"},
	do:       describeZones,
}

// describeZones shows the zones and what they offer, in stock or not. With
// Verbose, the default, it says so once more by I/O optimisation.
func describeZones(req *Request) (wire.Object, *wire.Refusal) {
	verbose, no := req.Params.Boolean("Verbose", true)
	if no != nil {
		return nil, no
	}
	var list []wire.Object
	for _, zone := range req.Rules.Zones {
		offers := wire.Each(req.Region.StockOf(zone), func(l state.StockLevel) string { return l.Category })
		z := wire.Object{
			"ZoneId": zone, "LocalName": zone, "ZoneType": "AvailabilityZone",
			"AvailableDiskCategories":   wire.Wrapped("DiskCategories", offers),
			"AvailableVolumeCategories": wire.Wrapped("VolumeCategories", []string{}),
			"AvailableResourceCreation": wire.Wrapped("ResourceTypes", []string{"IoOptimized", "Instance", "Disk", "VSwitch"}),
		}
		if verbose {
			types := wire.Each(req.Region.InstanceTypes(), func(t state.InstanceType) string { return t.ID })
			z["AvailableInstanceTypes"] = wire.Wrapped("InstanceTypes", types)
			z["AvailableResources"] = wire.Wrapped("ResourcesInfo", []wire.Object{{
				"IoOptimized":          true,
				"InstanceTypes":        wire.Wrapped("supportedInstanceType", types),
				"DataDiskCategories":   wire.Wrapped("supportedDataDiskCategory", offers),
				"SystemDiskCategories": wire.Wrapped("supportedSystemDiskCategory", offers),
			}})
		}
		list = append(list, z)
	}
	return wire.Object{"Zones": wire.Wrapped("Zone", list)}, nil
}
