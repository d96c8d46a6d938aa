package actions

import (
	"slices"

	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

var describeAvailableResourceAction = Action{
	Name:     "DescribeAvailableResource",
	required: []string{"RegionId", "DestinationResource"},
	optional: []string{
		"ZoneId", "ResourceType", "InstanceType", "InstanceChargeType", "IoOptimized", "DataDiskCategory", "SystemDiskCategory",
		"NetworkCategory", "Scope",
	},
	regionCode: wire.Refusal{Status: 404, Code: "Invalid.RegionId"},
	do:         describeAvailableResource,
}

// destinations are the values of DestinationResource that are answered here.
var destinations = []string{"DataDisk", "InstanceType", "Zone"}

// describeAvailableResource shows what the stock table says, zone by zone:
// what is not on offer is not there, what is sold out says so.
func describeAvailableResource(req *Request) (wire.Object, *wire.Refusal) {
	if no := checkAvailable(req); no != nil {
		return nil, no
	}
	zones := req.Rules.Zones
	switch {
	case req.Params["Scope"] == "Region":
		zones = []string{""}
	case req.Params["ZoneId"] != "":
		zones = []string{req.Params["ZoneId"]}
	}
	var list []wire.Object
	for _, zone := range zones {
		if z := availableZone(req, zone); z != nil {
			list = append(list, z)
		}
	}
	if list == nil {
		return nil, nil // ECS leaves AvailableZones out then
	}
	return wire.Object{"AvailableZones": wire.Wrapped("AvailableZone", list)}, nil
}

// checkAvailable checks the parameters of DescribeAvailableResource.
func checkAvailable(req *Request) *wire.Refusal {
	kind, what, zone := req.Params["ResourceType"], req.Params["DestinationResource"], req.Params["ZoneId"]
	_, known := req.Region.InstanceType(req.Params["InstanceType"])
	switch {
	case !slices.Contains(destinations, what):
		return wire.Refuse(404, "Invalid.DestinationResource", "The specified DestinationResource %q is not valid: %s.", what, config.List(destinations))
	case !req.Params.OneOf("ResourceType", "instance", "disk"):
		return wire.Refuse(404, "Invalid.ResourceType", "The specified ResourceType %q is not valid: instance or disk.", kind)
	case what == "DataDisk" && kind != "disk" && req.Params["InstanceType"] == "":
		return wire.Missing("InstanceType")
	case req.Params["InstanceType"] != "" && !known:
		return wire.Refuse(404, "InvalidResourceId.NotFound", "The specified InstanceType %q does not exist.", req.Params["InstanceType"])
	case !req.Params.OneOf("InstanceChargeType", "PostPaid", "PrePaid"):
		return wire.Refuse(400, "Invalid.InstanceChargeType", "The specified InstanceChargeType %q is not valid: PostPaid or PrePaid.", req.Params["InstanceChargeType"])
	case !req.Params.OneOf("Scope", "Region"):
		return wire.Refuse(400, "Invalid.Param", "The specified Scope %q is not valid: Region.", req.Params["Scope"])
	case zone != "" && !slices.Contains(req.Rules.Zones, zone):
		return wire.Refuse(400, "Invalid.Param", "The specified ZoneId %q does not exist.", zone)
	}
	return nil
}

// availableZone renders what a zone has, or nil if that is nothing.
func availableZone(req *Request, zone string) wire.Object {
	var resources []wire.Object
	stocked := false
	switch req.Params["DestinationResource"] {
	case "DataDisk":
		resources, stocked = availableDisks(req, zone)
	case "InstanceType":
		for _, t := range req.Region.InstanceTypes() {
			if req.Params.OneOf("InstanceType", t.ID) {
				resources = append(resources, availability(t.ID, true))
			}
		}
		stocked = true
	case "Zone":
		resources, stocked = []wire.Object{availability(zone, true)}, true
	}
	if resources == nil {
		return nil
	}
	z := availability(zone, stocked)
	delete(z, "Value")
	z["RegionId"], z["ZoneId"] = req.Rules.Region, zone
	z["AvailableResources"] = wire.Wrapped("AvailableResource", []wire.Object{{
		"Type": req.Params["DestinationResource"], "SupportedResources": wire.Wrapped("SupportedResource", resources),
	}})
	return z
}

// availableDisks renders the disk categories of a zone, and tells whether any
// is in stock.
func availableDisks(req *Request, zone string) (list []wire.Object, stocked bool) {
	t, typed := req.Region.InstanceType(req.Params["InstanceType"])
	for _, level := range req.Region.StockOf(zone) {
		if !req.Params.OneOf("DataDiskCategory", level.Category) || typed && !t.Takes(level.Category) {
			continue
		}
		spec := state.Categories[level.Category]
		r := availability(level.Category, level.Units != 0)
		r["Min"], r["Max"], r["Unit"] = spec.Min, spec.Max, "GiB"
		list = append(list, r)
		stocked = stocked || level.Units != 0
	}
	return list, stocked
}

// availability renders that something is in stock or sold out.
func availability(value string, stocked bool) wire.Object {
	if stocked {
		return wire.Object{"Value": value, "Status": "Available", "StatusCategory": "WithStock"}
	}
	return wire.Object{"Value": value, "Status": "SoldOut", "StatusCategory": "WithoutStock"}
}
