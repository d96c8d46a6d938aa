package facts

import "slices"

// resourceFacts are of what a region and its zones offer.
func resourceFacts() []Fact {
	return []Fact{
		one("DescribeAvailableResource", "it lists what a zone sells, with the smallest and largest size", page, Nothing, func(p *Probe) {
			resources := p.resources()
			for _, r := range resources {
				if low, _ := r["Min"].(float64); r.text("Value") == "" || r.text("Status") == "" || r.text("Unit") != "GiB" || low < 1 {
					p.differs("resource %v", r)
				}
			}
			if len(resources) == 0 {
				p.differs("there are no resources")
			}
		}),
		one("DescribeAvailableResource", "a category that is sold out is listed as sold out, as in CreateDisk", page, Simulator, func(p *Probe) {
			p.must(p.Sim.SetStock(p.Zone, "cloud_essd", 0))
			for _, r := range p.resources("ZoneId", p.Zone) {
				if want := map[bool]string{true: "SoldOut", false: "Available"}[r.text("Value") == "cloud_essd"]; r.text("Status") != want {
					p.differs("%s is %s", r.text("Value"), r.text("Status"))
				}
			}
		}),
		one("DescribeZones", "a zone has the categories of its disks, some of them under names in lower case", "SDK", Nothing, func(p *Probe) {
			zones := p.ok(p.ask("DescribeZones")).rows("Zones", "Zone")
			if len(zones) == 0 {
				p.stop("there is no zone")
			}
			if wrap, _ := zones[0]["AvailableDiskCategories"].(map[string]any); wrap["DiskCategories"] == nil {
				p.differs("AvailableDiskCategories is %v", zones[0]["AvailableDiskCategories"])
			}
			info := zones[0].rows("AvailableResources", "ResourcesInfo")
			if len(info) == 0 {
				p.stop("AvailableResources is %v", zones[0]["AvailableResources"])
			}
			if wrap, _ := info[0]["DataDiskCategories"].(map[string]any); wrap["supportedDataDiskCategory"] == nil {
				p.differs("DataDiskCategories is %v", info[0]["DataDiskCategories"])
			}
		}),
		one("DescribeRegions", "the region is listed with its endpoint", page, Nothing, func(p *Probe) {
			list := p.ok(p.ask("DescribeRegions")).rows("Regions", "Region")
			i := slices.IndexFunc(list, func(r row) bool { return r.text("RegionId") == p.Region })
			if i < 0 || list[i].text("RegionEndpoint") == "" {
				p.differs("it is not")
			}
		}),
		one("DescribeInstanceTypes", "a type has its number of disks and whether it needs NVMe", page, Nothing, func(p *Probe) {
			list := p.ok(p.ask("DescribeInstanceTypes", "InstanceTypes.1", "ecs.g7.large")).rows("InstanceTypes", "InstanceType")
			if len(list) != 1 {
				p.stop("%d types", len(list))
			}
			if n, _ := list[0]["DiskQuantity"].(float64); n < 2 || list[0].text("NvmeSupport") == "" || list[0].text("InstanceTypeFamily") != "ecs.g7" {
				p.differs("type %v", list[0])
			}
		}),
		one("DescribeInstances", "101 IDs are refused", page, Nothing, func(p *Probe) {
			if a := p.ask("DescribeInstances", "InstanceIds", idList(repeated(101, noInstance)...)); a.status < 400 {
				p.differs("%s", a.outcome())
			}
		}),
	}
}

// resources returns the data disks that the first zone of a reply offers.
func (p *Probe) resources(pairs ...string) []row {
	zones := p.ok(p.ask("DescribeAvailableResource",
		append([]string{"DestinationResource", "DataDisk", "ResourceType", "disk"}, pairs...)...)).rows("AvailableZones", "AvailableZone")
	if len(zones) == 0 {
		p.stop("there is no zone")
	}
	list := zones[0].rows("AvailableResources", "AvailableResource")
	if len(list) == 0 || list[0].text("Type") != "DataDisk" {
		p.stop("zone %s has no data disks", zones[0].text("ZoneId"))
	}
	return list[0].rows("SupportedResources", "SupportedResource")
}
