package ecssim

import (
	"fmt"
	"strings"

	"github.com/topodisk/topodisk/ecssim/faults"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// authorize refuses a call that its sender may not make, or blinds it.
func (s *Server) authorize(x *exchange) *wire.Refusal {
	if x.action.unsigned {
		return nil
	}
	allowed, blind := s.permissions.Ask(x.caller.Principal(), x.action.name, strings.ToLower(x.product()), func() []faults.Resource { return s.about(x) })
	if allowed {
		x.blind = blind
		return nil
	}
	x.denial = s.denialDetail(x)
	return wire.Refuse(403, "Forbidden.RAM", "User not authorized to operate on the specified resource, or this API doesn't support RAM.")
}

// denialDetail is what the error body says of a denial.
func (s *Server) denialDetail(x *exchange) wire.Object {
	kind := "SubUser"
	if x.caller.Role != "" {
		kind = "AssumedRoleUser"
	}
	return wire.Object{
		"AuthAction": strings.ToLower(x.product()) + ":" + x.action.name, "AuthPrincipalType": kind, "AuthPrincipalDisplayName": x.caller.Principal(),
		"AuthPrincipalOwnerId": s.config.Account, "PolicyType": "AccountLevelIdentityBasedPolicy", "NoPermissionType": "ImplicitDeny",
	}
}

// aboutOf names the resources that an action is checked for, as ECS's page on RAM
// authorization lists them: type, and the parameter that holds the ID; without
// one the resource is to be made. Other actions are checked for everything.
var aboutOf = map[string][][2]string{
	"CreateDisk":          {{"disk"}, {"snapshot", "SnapshotId"}},
	"DeleteDisk":          {{"disk", "DiskId"}},
	"ResizeDisk":          {{"disk", "DiskId"}},
	"ModifyDiskSpec":      {{"disk", "DiskId"}},
	"ModifyDiskAttribute": {{"disk", "DiskId"}, {"disk", "DiskIds"}},
	"AttachDisk":          {{"disk", "DiskId"}, {"instance", "InstanceId"}},
	"DetachDisk":          {{"disk", "DiskId"}, {"instance", "InstanceId"}},
	"CreateSnapshot":      {{"disk", "DiskId"}, {"snapshot"}},
	"DeleteSnapshot":      {{"snapshot", "SnapshotId"}},
	"CreateSnapshotGroup": {{"disk", "DiskId"}, {"instance", "InstanceId"}},
	"DeleteSnapshotGroup": {{"snapshotgroup", "SnapshotGroupId"}},
	"TagResources":        {{"", "ResourceId"}},
	"UntagResources":      {{"", "ResourceId"}},
}

// about returns what a call is about.
func (s *Server) about(x *exchange) []faults.Resource {
	request := map[string]string{}
	if list, no := x.Params.Tags(); no == nil {
		for _, t := range list {
			request[t.Key] = t.Value
		}
	}
	var all []faults.Resource
	const toBeMade = "*"
	add := func(kind, id string) {
		t := faults.Resource{ARN: fmt.Sprintf("acs:%s:%s:%s:%s/%s", strings.ToLower(x.product()), s.config.Region, s.config.Account, kind, id), Request: request}
		has, _ := s.tagsOf(kind, id)
		if has != nil {
			t.Tags = has.Current
		}
		if has != nil || id == toBeMade {
			all = append(all, t)
		}
	}
	for _, about := range aboutOf[x.action.name] {
		kind, parameter := about[0], about[1]
		if kind == "" {
			kind = x.Params["ResourceType"]
		}
		if parameter == "" {
			add(kind, toBeMade)
			continue
		}
		for _, id := range append(x.Params.List(parameter), x.Params[parameter]) {
			if id != "" {
				add(kind, id)
			}
		}
	}
	if _, narrow := aboutOf[x.action.name]; !narrow {
		all = append(all, faults.Resource{ARN: fmt.Sprintf("acs:%s:%s:%s:*", strings.ToLower(x.product()), s.config.Region, s.config.Account), Request: request})
	}
	return all
}
