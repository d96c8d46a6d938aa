package actions

import (
	"fmt"
	"strings"

	"github.com/topodisk/topodisk/ecssim/faults"
)

// Resources returns what a call is about.
func (req *Request) Resources() []faults.Resource {
	request := map[string]string{}
	if list, no := req.Params.Tags(); no == nil {
		for _, t := range list {
			request[t.Key] = t.Value
		}
	}
	var all []faults.Resource
	const toBeMade = "*"
	add := func(kind, id string) {
		t := faults.Resource{ARN: fmt.Sprintf("acs:%s:%s:%s:%s/%s", strings.ToLower(req.Product()), req.Rules.Region, req.Rules.Account, kind, id), Request: request}
		has, _ := tagsOf(req, kind, id)
		if has != nil {
			t.Tags = has.Current
		}
		if has != nil || id == toBeMade {
			all = append(all, t)
		}
	}
	for _, about := range req.Action.about {
		kind, parameter := about[0], about[1]
		if kind == "" {
			kind = req.Params["ResourceType"]
		}
		if parameter == "" {
			add(kind, toBeMade)
			continue
		}
		for _, id := range append(req.Params.List(parameter), req.Params[parameter]) {
			if id != "" {
				add(kind, id)
			}
		}
	}
	if req.Action.about == nil {
		all = append(all, faults.Resource{ARN: fmt.Sprintf("acs:%s:%s:%s:*", strings.ToLower(req.Product()), req.Rules.Region, req.Rules.Account), Request: request})
	}
	return all
}
