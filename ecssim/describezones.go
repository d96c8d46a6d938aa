package ecssim

import (
	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

var describeRegions = action{
	name: "DescribeRegions", anyRegion: true,
	optional: []string{"InstanceChargeType", "ResourceType", "AcceptLanguage"},
	do:       (*Server).describeRegions,
}

// describeRegions shows the one region that is simulated.
func (s *Server) describeRegions(*exchange) (wire.Object, *wire.Refusal) {
	return wire.Object{"Regions": wire.Wrapped("Region", []wire.Object{{
		"RegionId": s.config.Region, "LocalName": s.config.Region, "Status": "available",
		"RegionEndpoint": "ecs." + s.config.Region + ".aliyuncs.com",
	}})}, nil
}

var describeZones = action{
	name:     "DescribeZones",
	required: []string{"RegionId"},
	optional: []string{"Verbose", "InstanceChargeType", "SpotStrategy", "AcceptLanguage"},
	do:       (*Server).describeZones,
}

// describeZones shows the zones and what they offer, in stock or not. With
// Verbose, the default, it says so once more by I/O optimisation.
func (s *Server) describeZones(x *exchange) (wire.Object, *wire.Refusal) {
	verbose, no := x.Params.Boolean("Verbose", true)
	if no != nil {
		return nil, no
	}
	var list []wire.Object
	for _, zone := range s.config.Zones {
		offers := wire.Each(s.region.StockOf(zone), func(l state.StockLevel) string { return l.Category })
		z := wire.Object{
			"ZoneId": zone, "LocalName": zone, "ZoneType": "AvailabilityZone",
			"AvailableDiskCategories":   wire.Wrapped("DiskCategories", offers),
			"AvailableVolumeCategories": wire.Wrapped("VolumeCategories", []string{}),
			"AvailableResourceCreation": wire.Wrapped("ResourceTypes", []string{"IoOptimized", "Instance", "Disk", "VSwitch"}),
		}
		if verbose {
			types := wire.Each(s.region.InstanceTypes(), func(t state.InstanceType) string { return t.ID })
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
