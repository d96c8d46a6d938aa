package ecssim

var describeRegions = action{
	name: "DescribeRegions", anyRegion: true,
	optional: []string{"InstanceChargeType", "ResourceType", "AcceptLanguage"},
	do:       (*Server).describeRegions,
}

// describeRegions shows the one region that is simulated.
func (s *Server) describeRegions(*exchange) (object, *refusal) {
	return object{"Regions": wrapped("Region", []object{{
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
func (s *Server) describeZones(x *exchange) (object, *refusal) {
	verbose, no := x.params.boolean("Verbose", true)
	if no != nil {
		return nil, no
	}
	var list []object
	for _, zone := range s.config.Zones {
		offers := s.stock.offers(zone)
		z := object{
			"ZoneId": zone, "LocalName": zone, "ZoneType": "AvailabilityZone",
			"AvailableDiskCategories":   wrapped("DiskCategories", offers),
			"AvailableVolumeCategories": wrapped("VolumeCategories", []string{}),
			"AvailableResourceCreation": wrapped("ResourceTypes", []string{"IoOptimized", "Instance", "Disk", "VSwitch"}),
		}
		if verbose {
			types := s.fleet.typeNames()
			z["AvailableInstanceTypes"] = wrapped("InstanceTypes", types)
			z["AvailableResources"] = wrapped("ResourcesInfo", []object{{
				"IoOptimized":          true,
				"InstanceTypes":        wrapped("supportedInstanceType", types),
				"DataDiskCategories":   wrapped("supportedDataDiskCategory", offers),
				"SystemDiskCategories": wrapped("supportedSystemDiskCategory", offers),
			}})
		}
		list = append(list, z)
	}
	return object{"Zones": wrapped("Zone", list)}, nil
}
