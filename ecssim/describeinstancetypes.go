package ecssim

import (
	"slices"

	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/wire"
)

var describeInstanceTypes = action{
	name: "DescribeInstanceTypes",
	optional: []string{
		"InstanceTypes.N", "InstanceTypeFamily", "InstanceTypeFamilies.N", "NvmeSupport", "MinimumDiskQuantity", "NextToken", "MaxResults",
	},
	do: (*Server).describeInstanceTypes,
}

// describeInstanceTypes shows the instance types that pass every filter.
func (s *Server) describeInstanceTypes(x *exchange) (wire.Object, *wire.Refusal) {
	names, families := x.Params.List("InstanceTypes"), x.Params.List("InstanceTypeFamilies")
	if len(names) > 10 {
		return nil, wire.Refuse(400, "InvalidParameter", "The specified parameter InstanceTypes.N is not valid: at most 10 types.")
	}
	if family := x.Params["InstanceTypeFamily"]; family != "" {
		families = append(families, family)
	}
	quantity, no := x.Params.Integer("MinimumDiskQuantity", 0)
	if no != nil {
		return nil, no
	}
	if !x.Params.OneOf("NvmeSupport", nvmeSupport...) {
		return nil, wire.Refuse(400, "InvalidParameter", "The specified parameter NvmeSupport %q is not valid: %s.", x.Params["NvmeSupport"], config.List(nvmeSupport))
	}
	page, no := s.readTokenPage(x, wire.Paging{Fallback: 100, MinResults: 1, MaxResults: 100})
	if no != nil {
		return nil, no
	}
	var found []InstanceType
	for _, name := range s.fleet.typeNames() {
		t := s.fleet.types[name]
		if (len(names) == 0 || slices.Contains(names, t.ID)) && (len(families) == 0 || slices.Contains(families, t.family())) &&
			t.DiskQuantity >= quantity && x.Params.OneOf("NvmeSupport", t.NVMe) {
			found = append(found, t)
		}
	}
	order := s.fleet.typeNames() // which hardly ever changes, so that a place in it is a key
	shown, reply := wire.Cut(page, found, func(t InstanceType) int { return slices.Index(order, t.ID) + 1 })
	reply["InstanceTypes"] = wire.Wrapped("InstanceType", wire.Each(shown, func(t InstanceType) wire.Object {
		return wire.Object{
			"InstanceTypeId": t.ID, "InstanceTypeFamily": t.family(), "DiskQuantity": t.DiskQuantity, "NvmeSupport": t.NVMe,
			"LocalStorageAmount": 0, "LocalStorageCapacity": 0, "LocalStorageCategory": "",
		}
	}))
	return reply, nil
}
