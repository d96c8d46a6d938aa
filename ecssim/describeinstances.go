package ecssim

import (
	"slices"

	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

var describeInstances = action{
	name:     "DescribeInstances",
	required: []string{"RegionId"},
	optional: []string{
		"InstanceIds", "ZoneId", "Status", "InstanceType", "InstanceTypeFamily", "Tag.N.Key", "Tag.N.Value", "Tag.N.key", "Tag.N.value",
		"AdditionalAttributes.N", "NextToken", "MaxResults", "PageNumber", "PageSize",
	},
	do: (*Server).describeInstances,
}

// describeInstances shows the instances that pass every filter.
func (s *Server) describeInstances(x *exchange) (wire.Object, *wire.Refusal) {
	ids, byID, no := x.Params.JSONList("InstanceIds",
		func() *wire.Refusal {
			return wire.Refuse(403, "InvalidInstanceIds.Malformed", "The amount of specified instance IDs exceeds the limit of 100.")
		},
		func() *wire.Refusal {
			return wire.Refuse(400, "InvalidParameter.InstanceIds", "The specified parameter InstanceIds is not valid: it must be a JSON array of instance IDs.")
		})
	if no != nil {
		return nil, no
	}
	tags, no := x.Params.Tags()
	if no != nil {
		return nil, no
	}
	if !x.Params.OneOf("Status", state.InstanceStates...) {
		return nil, wire.Refuse(400, "InvalidStatus.ValueNotSupported", "The specified parameter Status %q is not valid: %s.", x.Params["Status"], config.List(state.InstanceStates))
	}
	page, no := s.readPage(x, wire.Paging{DefaultSize: 10, MaxSize: 100, MinResults: 10, MaxResults: 100})
	if no != nil {
		return nil, no
	}
	var found []*state.Instance
	for i := range s.instancesFor(x) {
		if (!byID || slices.Contains(ids, i.ID)) && x.Params.OneOf("ZoneId", i.Zone) && x.Params.OneOf("Status", i.Status) &&
			x.Params.OneOf("InstanceType", i.Type) && x.Params.OneOf("InstanceTypeFamily", i.Kind.FamilyName()) &&
			wire.HasTags(i.Tags.Searched(x.now, s.timing.TagsVisible), tags) {
			found = append(found, i)
		}
	}
	shown, reply := wire.Cut(page, found, func(i *state.Instance) int { return i.Seq })
	reply["Instances"] = wire.Wrapped("Instance", wire.Each(shown, s.renderInstance))
	return reply, nil
}

// renderInstance returns an instance as DescribeInstances shows it.
func (s *Server) renderInstance(i *state.Instance) wire.Object {
	return wire.Object{
		"InstanceId": i.ID, "InstanceName": i.ID, "RegionId": s.config.Region, "ZoneId": i.Zone, "Status": i.Status,
		"InstanceType": i.Type, "InstanceTypeFamily": i.Kind.FamilyName(), "IoOptimized": !i.Kind.NotIOOptimized,
		"InstanceChargeType": "PostPaid", "InstanceNetworkType": "vpc", "StoppedMode": "Not-applicable", "Recyclable": false,
		"Tags": wire.Wrapped("Tag", s.tags(i.Tags)), "OperationLocks": wire.Wrapped("LockReason", renderLocks(i.LockReasons())),
		"MetadataOptions": metadataOptions(i),
	}
}
