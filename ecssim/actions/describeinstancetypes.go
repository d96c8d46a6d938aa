package actions

import (
	"slices"

	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

var describeInstanceTypesAction = Action{
	Name: "DescribeInstanceTypes",
	optional: []string{
		"InstanceTypes.N", "InstanceTypeFamily", "InstanceTypeFamilies.N", "NvmeSupport", "MinimumDiskQuantity", "NextToken", "MaxResults",
	},
	do: describeInstanceTypes,
}

// describeInstanceTypes shows the instance types that pass every filter.
func describeInstanceTypes(req *Request) (wire.Object, *wire.Refusal) {
	names, families := req.Params.List("InstanceTypes"), req.Params.List("InstanceTypeFamilies")
	if len(names) > 10 {
		return nil, wire.Refuse(400, "InvalidParameter", "The specified parameter InstanceTypes.N is not valid: at most 10 types.")
	}
	if family := req.Params["InstanceTypeFamily"]; family != "" {
		families = append(families, family)
	}
	quantity, no := req.Params.Integer("MinimumDiskQuantity", 0)
	if no != nil {
		return nil, no
	}
	if !req.Params.OneOf("NvmeSupport", state.NVMeSupport...) {
		return nil, wire.Refuse(400, "InvalidParameter", "The specified parameter NvmeSupport %q is not valid: %s.", req.Params["NvmeSupport"], config.List(state.NVMeSupport))
	}
	page, no := readTokenPage(req, wire.Paging{Fallback: 100, MinResults: 1, MaxResults: 100})
	if no != nil {
		return nil, no
	}
	var found []state.InstanceType
	all := req.Region.InstanceTypes()
	for _, t := range all {
		if (len(names) == 0 || slices.Contains(names, t.ID)) && (len(families) == 0 || slices.Contains(families, t.FamilyName())) &&
			t.DiskQuantity >= quantity && req.Params.OneOf("NvmeSupport", t.NVMe) {
			found = append(found, t)
		}
	}
	place := func(t state.InstanceType) int { // in the list, which hardly ever changes, so that it is a key
		return 1 + slices.IndexFunc(all, func(other state.InstanceType) bool { return other.ID == t.ID })
	}
	shown, reply := wire.Cut(page, found, place)
	reply["InstanceTypes"] = wire.Wrapped("InstanceType", wire.Each(shown, func(t state.InstanceType) wire.Object {
		return wire.Object{
			"InstanceTypeId": t.ID, "InstanceTypeFamily": t.FamilyName(), "DiskQuantity": t.DiskQuantity, "NvmeSupport": t.NVMe,
			"LocalStorageAmount": 0, "LocalStorageCapacity": 0, "LocalStorageCategory": "",
		}
	}))
	return reply, nil
}
