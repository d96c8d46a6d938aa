package ecssim

import (
	"slices"

	"github.com/topodisk/topodisk/ecssim/config"
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
func (s *Server) describeInstances(x *exchange) (object, *refusal) {
	ids, byID, no := x.params.jsonList("InstanceIds",
		func() *refusal {
			return refuse(403, "InvalidInstanceIds.Malformed", "The amount of specified instance IDs exceeds the limit of 100.")
		},
		func() *refusal {
			return refuse(400, "InvalidParameter.InstanceIds", "The specified parameter InstanceIds is not valid: it must be a JSON array of instance IDs.")
		})
	if no != nil {
		return nil, no
	}
	tags, no := x.params.tags()
	if no != nil {
		return nil, no
	}
	if !x.params.oneOf("Status", instanceStates...) {
		return nil, refuse(400, "InvalidStatus.ValueNotSupported", "The specified parameter Status %q is not valid: %s.", x.params["Status"], config.List(instanceStates))
	}
	page, no := s.readPage(x, paging{defaultSize: 10, maxSize: 100, minResults: 10, maxResults: 100})
	if no != nil {
		return nil, no
	}
	var found []*instance
	for _, i := range s.instancesFor(x) {
		if (!byID || slices.Contains(ids, i.ID)) && x.params.oneOf("ZoneId", i.Zone) && x.params.oneOf("Status", i.Status) &&
			x.params.oneOf("InstanceType", i.Type) && x.params.oneOf("InstanceTypeFamily", i.kind.family()) &&
			i.tags.matches(tags, x.now, s.config.Latency.TagsVisible) {
			found = append(found, i)
		}
	}
	shown, reply := cut(page, found, func(i *instance) int { return i.seq })
	reply["Instances"] = wrapped("Instance", each(shown, s.renderInstance))
	return reply, nil
}

// renderInstance returns an instance as DescribeInstances shows it.
func (s *Server) renderInstance(i *instance) object {
	return object{
		"InstanceId": i.ID, "InstanceName": i.ID, "RegionId": s.config.Region, "ZoneId": i.Zone, "Status": i.Status,
		"InstanceType": i.Type, "InstanceTypeFamily": i.kind.family(), "IoOptimized": !i.kind.NotIOOptimized,
		"InstanceChargeType": "PostPaid", "InstanceNetworkType": "vpc", "StoppedMode": "Not-applicable", "Recyclable": false,
		"Tags": wrapped("Tag", s.tags(i.tags)), "OperationLocks": wrapped("LockReason", i.renderLocks()),
		"MetadataOptions": i.metadataOptions(),
	}
}
