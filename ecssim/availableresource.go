package ecssim

import (
	"slices"

	"github.com/topodisk/topodisk/ecssim/config"
)

var describeAvailableResource = action{
	name:     "DescribeAvailableResource",
	required: []string{"RegionId", "DestinationResource"},
	optional: []string{
		"ZoneId", "ResourceType", "InstanceType", "InstanceChargeType", "IoOptimized", "DataDiskCategory", "SystemDiskCategory",
		"NetworkCategory", "Scope",
	},
	regionCode: refusal{status: 404, code: "Invalid.RegionId"},
	do:         (*Server).describeAvailableResource,
}

// destinations are the values of DestinationResource that are answered here.
var destinations = []string{"DataDisk", "InstanceType", "Zone"}

// describeAvailableResource shows what the stock table says, zone by zone:
// what is not on offer is not there, what is sold out says so.
func (s *Server) describeAvailableResource(x *exchange) (object, *refusal) {
	if no := s.checkAvailable(x); no != nil {
		return nil, no
	}
	zones := s.config.Zones
	switch {
	case x.params["Scope"] == "Region":
		zones = []string{""}
	case x.params["ZoneId"] != "":
		zones = []string{x.params["ZoneId"]}
	}
	var list []object
	for _, zone := range zones {
		if z := s.availableZone(x, zone); z != nil {
			list = append(list, z)
		}
	}
	if list == nil {
		return nil, nil // ECS leaves AvailableZones out then
	}
	return object{"AvailableZones": wrapped("AvailableZone", list)}, nil
}

// checkAvailable checks the parameters of DescribeAvailableResource.
func (s *Server) checkAvailable(x *exchange) *refusal {
	kind, what, zone := x.params["ResourceType"], x.params["DestinationResource"], x.params["ZoneId"]
	_, known := s.fleet.types[x.params["InstanceType"]]
	switch {
	case !slices.Contains(destinations, what):
		return refuse(404, "Invalid.DestinationResource", "The specified DestinationResource %q is not valid: %s.", what, config.List(destinations))
	case !x.params.oneOf("ResourceType", "instance", "disk"):
		return refuse(404, "Invalid.ResourceType", "The specified ResourceType %q is not valid: instance or disk.", kind)
	case what == "DataDisk" && kind != "disk" && x.params["InstanceType"] == "":
		return missing("InstanceType")
	case x.params["InstanceType"] != "" && !known:
		return refuse(404, "InvalidResourceId.NotFound", "The specified InstanceType %q does not exist.", x.params["InstanceType"])
	case !x.params.oneOf("InstanceChargeType", "PostPaid", "PrePaid"):
		return refuse(400, "Invalid.InstanceChargeType", "The specified InstanceChargeType %q is not valid: PostPaid or PrePaid.", x.params["InstanceChargeType"])
	case !x.params.oneOf("Scope", "Region"):
		return refuse(400, "Invalid.Param", "The specified Scope %q is not valid: Region.", x.params["Scope"])
	case zone != "" && !slices.Contains(s.config.Zones, zone):
		return refuse(400, "Invalid.Param", "The specified ZoneId %q does not exist.", zone)
	}
	return nil
}

// availableZone renders what a zone has, or nil if that is nothing.
func (s *Server) availableZone(x *exchange, zone string) object {
	var resources []object
	stocked := false
	switch x.params["DestinationResource"] {
	case "DataDisk":
		resources, stocked = s.availableDisks(x, zone)
	case "InstanceType":
		for _, t := range s.fleet.typeNames() {
			if x.params.oneOf("InstanceType", t) {
				resources = append(resources, availability(t, true))
			}
		}
		stocked = true
	case "Zone":
		resources, stocked = []object{availability(zone, true)}, true
	}
	if resources == nil {
		return nil
	}
	z := availability(zone, stocked)
	delete(z, "Value")
	z["RegionId"], z["ZoneId"] = s.config.Region, zone
	z["AvailableResources"] = wrapped("AvailableResource", []object{{
		"Type": x.params["DestinationResource"], "SupportedResources": wrapped("SupportedResource", resources),
	}})
	return z
}

// availableDisks renders the disk categories of a zone, and tells whether any
// is in stock.
func (s *Server) availableDisks(x *exchange, zone string) (list []object, stocked bool) {
	for _, name := range s.stock.offers(zone) {
		t, typed := s.fleet.types[x.params["InstanceType"]]
		if !x.params.oneOf("DataDiskCategory", name) || typed && !t.takes(name) {
			continue
		}
		units := s.stock[zone][name].units
		r := availability(name, units != 0)
		r["Min"], r["Max"], r["Unit"] = categories[name].min, categories[name].max, "GiB"
		list = append(list, r)
		stocked = stocked || units != 0
	}
	return list, stocked
}

// availability renders that something is in stock or sold out.
func availability(value string, stocked bool) object {
	if stocked {
		return object{"Value": value, "Status": "Available", "StatusCategory": "WithStock"}
	}
	return object{"Value": value, "Status": "SoldOut", "StatusCategory": "WithoutStock"}
}
