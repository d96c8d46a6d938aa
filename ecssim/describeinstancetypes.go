package ecssim

import (
	"slices"

	"github.com/topodisk/topodisk/ecssim/config"
)

var describeInstanceTypes = action{
	name: "DescribeInstanceTypes",
	optional: []string{
		"InstanceTypes.N", "InstanceTypeFamily", "InstanceTypeFamilies.N", "NvmeSupport", "MinimumDiskQuantity", "NextToken", "MaxResults",
	},
	do: (*Server).describeInstanceTypes,
}

// describeInstanceTypes shows the instance types that pass every filter.
func (s *Server) describeInstanceTypes(x *exchange) (object, *refusal) {
	names, families := x.params.list("InstanceTypes"), x.params.list("InstanceTypeFamilies")
	if len(names) > 10 {
		return nil, refuse(400, "InvalidParameter", "The specified parameter InstanceTypes.N is not valid: at most 10 types.")
	}
	if family := x.params["InstanceTypeFamily"]; family != "" {
		families = append(families, family)
	}
	quantity, no := x.params.integer("MinimumDiskQuantity", 0)
	if no != nil {
		return nil, no
	}
	if !x.params.oneOf("NvmeSupport", nvmeSupport...) {
		return nil, refuse(400, "InvalidParameter", "The specified parameter NvmeSupport %q is not valid: %s.", x.params["NvmeSupport"], config.List(nvmeSupport))
	}
	page, no := s.readTokenPage(x, paging{fallback: 100, minResults: 1, maxResults: 100})
	if no != nil {
		return nil, no
	}
	var found []InstanceType
	for _, name := range s.fleet.typeNames() {
		t := s.fleet.types[name]
		if (len(names) == 0 || slices.Contains(names, t.ID)) && (len(families) == 0 || slices.Contains(families, t.family())) &&
			t.DiskQuantity >= quantity && x.params.oneOf("NvmeSupport", t.NVMe) {
			found = append(found, t)
		}
	}
	order := s.fleet.typeNames() // which hardly ever changes, so that a place in it is a key
	shown, reply := cut(page, found, func(t InstanceType) int { return slices.Index(order, t.ID) + 1 })
	reply["InstanceTypes"] = wrapped("InstanceType", each(shown, func(t InstanceType) object {
		return object{
			"InstanceTypeId": t.ID, "InstanceTypeFamily": t.family(), "DiskQuantity": t.DiskQuantity, "NvmeSupport": t.NVMe,
			"LocalStorageAmount": 0, "LocalStorageCapacity": 0, "LocalStorageCategory": "",
		}
	}))
	return reply, nil
}
