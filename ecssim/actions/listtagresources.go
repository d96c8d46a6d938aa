package actions

import (
	"maps"
	"slices"

	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

var listTagResourcesAction = Action{
	Name:     "ListTagResources",
	required: []string{"RegionId", "ResourceType"},
	optional: []string{
		"ResourceId.N", "TagFilter.N.TagKey", "TagFilter.N.TagValues.N", "NextToken",
	},
	tagged: true,
	absent: absentTagType,
	lags:   true,
	do:     listTagResources,
}

// listTagResources lists the tags of resources, found by ID or by tag, at
// most 50 tags a page.
func listTagResources(req *Request) (wire.Object, *wire.Refusal) {
	found, no := findTagged(req)
	if no != nil {
		return nil, no
	}
	page, no := readTokenPage(req, wire.Paging{Fallback: 50, MinResults: 50, MaxResults: 50})
	if no != nil {
		return nil, no
	}
	type row struct {
		place int
		o     wire.Object
	}
	var rows []row
	for _, t := range found {
		for _, key := range slices.Sorted(maps.Keys(t.tags.Current)) {
			rows = append(rows, row{len(rows) + 1, wire.Object{
				"ResourceType": req.Params["ResourceType"], "ResourceId": t.id, "TagKey": key, "TagValue": t.tags.Current[key],
			}})
		}
	}
	shown, reply := wire.Cut(page, rows, func(r row) int { return r.place })
	reply["TagResources"] = wire.Wrapped("TagResource", wire.Each(shown, func(r row) wire.Object { return r.o }))
	return reply, nil
}

// findTagged returns the resources that have one of the IDs, if any are
// given, and all of the tags. IDs that don't exist are passed over.
func findTagged(req *Request) ([]tagged, *wire.Refusal) {
	if _, no := tagsOf(req, req.Params["ResourceType"], ""); no != nil {
		return nil, no
	}
	filters, no := req.Params.TagFilters()
	if no != nil {
		return nil, no
	}
	want, no := req.Params.Tags()
	if no != nil {
		return nil, no
	}
	ids := req.Params.List("ResourceId")
	switch {
	case len(ids) > maxTagTargets:
		return nil, wire.Refuse(400, "NumberExceed.ResourceIds", "The ResourceIds parameter's number is exceed: at most %d.", maxTagTargets)
	case len(want) > state.MaxTags:
		return nil, wire.Refuse(400, "NumberExceed.Tags", "The Tags parameter's number is exceed: at most %d.", state.MaxTags)
	case len(ids) == 0 && len(want) == 0 && len(filters) == 0:
		return nil, wire.Missing("ResourceId.N")
	}
	return slices.DeleteFunc(taggable(req, req.Params["ResourceType"]), func(t tagged) bool {
		return len(ids) > 0 && !slices.Contains(ids, t.id) || !wire.HasTags(t.tags.Searched(req.Now, req.Timing.TagsVisible), want) ||
			!wire.PassFilters(t.tags.Searched(req.Now, req.Timing.TagsVisible), filters)
	}), nil
}
