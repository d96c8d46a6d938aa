package actions

import (
	"fmt"
	"strings"

	"github.com/topodisk/topodisk/ecssim/faults"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// Resources returns what a call is about.
func (req *Request) Resources() []faults.Resource {
	const toBeMade = "*"
	carried := map[string]string{}
	if list, no := req.Params.Tags(); no == nil {
		carried = wire.TagMap(list)
	}
	arn := fmt.Sprintf("acs:%s:%s:%s:", strings.ToLower(req.Product()), req.Rules.Region, req.Rules.Account)
	if req.Action.about == nil {
		return []faults.Resource{{ARN: arn + "*", Request: carried}}
	}
	var all []faults.Resource
	add := func(kind, id string) {
		r := faults.Resource{ARN: arn + kind + "/" + id, Request: carried}
		has, _ := tagsOf(req, kind, id)
		if has != nil {
			r.Tags = has.Current
		}
		if has != nil || id == toBeMade {
			all = append(all, r)
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
	return all
}
