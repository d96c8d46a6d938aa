package actions

import "github.com/topodisk/topodisk/ecssim/wire"

var describeRegionsAction = Action{
	Name:      "DescribeRegions",
	anyRegion: true, // it may be asked for of any
	optional:  []string{"InstanceChargeType", "ResourceType", "AcceptLanguage"},
	do:        describeRegions,
}

// describeRegions shows the one region that is simulated.
func describeRegions(req *Request) (wire.Object, *wire.Refusal) {
	return wire.Object{"Regions": wire.Wrapped("Region", []wire.Object{{
		"RegionId": req.Rules.Region, "LocalName": req.Rules.Region, "Status": "available",
		"RegionEndpoint": "ecs." + req.Rules.Region + ".aliyuncs.com",
	}})}, nil
}
