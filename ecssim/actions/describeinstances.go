package actions

import (
	"slices"

	"github.com/topodisk/topodisk/ecssim/config"
	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

var describeInstancesAction = Action{
	Name:     "DescribeInstances",
	required: []string{"RegionId"},
	optional: []string{
		"InstanceIds", "ZoneId", "Status", "InstanceType", "InstanceTypeFamily", "AdditionalAttributes.N", "NextToken", "MaxResults", "PageNumber", "PageSize",
	},
	tagged: true,
	lags:   true,
	do:     describeInstances,
}

// describeInstances shows the instances that pass every filter.
func describeInstances(req *Request) (wire.Object, *wire.Refusal) {
	ids, byID, no := req.Params.IDs("InstanceIds", "instance")
	if no != nil {
		return nil, no
	}
	tags, no := req.Params.Tags()
	if no != nil {
		return nil, no
	}
	if !req.Params.OneOf("Status", state.InstanceStates...) {
		return nil, wire.Refuse(400, "InvalidStatus.ValueNotSupported", "The specified parameter Status %q is not valid: %s.", req.Params["Status"], config.List(state.InstanceStates))
	}
	page, no := readPage(req, wire.Paging{DefaultSize: 10, MaxSize: 100, MinResults: 10, MaxResults: 100})
	if no != nil {
		return nil, no
	}
	var found []*state.Instance
	for i := range instancesFor(req) {
		if (!byID || slices.Contains(ids, i.ID)) && req.Params.OneOf("ZoneId", i.Zone) && req.Params.OneOf("Status", i.Status) &&
			req.Params.OneOf("InstanceType", i.Type) && req.Params.OneOf("InstanceTypeFamily", i.Kind.FamilyName()) &&
			wire.HasTags(i.Tags.Searched(req.Now, req.Timing.TagsVisible), tags) {
			found = append(found, i)
		}
	}
	shown, reply := wire.Cut(page, found, func(i *state.Instance) int { return i.Seq })
	reply["Instances"] = wire.Wrapped("Instance", wire.Each(shown, func(i *state.Instance) wire.Object { return renderInstance(req, i) }))
	return reply, nil
}

// renderInstance returns an instance as DescribeInstances shows it.
func renderInstance(req *Request, i *state.Instance) wire.Object {
	return wire.Object{
		"InstanceId": i.ID, "InstanceName": i.ID, "RegionId": req.Rules.Region, "ZoneId": i.Zone, "Status": i.Status,
		"InstanceType": i.Type, "InstanceTypeFamily": i.Kind.FamilyName(), "IoOptimized": !i.Kind.NotIOOptimized,
		"InstanceChargeType": "PostPaid", "InstanceNetworkType": "vpc", "StoppedMode": "Not-applicable", "Recyclable": false,
		"Tags": renderTags(req, i.Tags), "OperationLocks": wire.Wrapped("LockReason", renderLocks(i.LockReasons())),
		"MetadataOptions": metadataOptions(i),
	}
}
