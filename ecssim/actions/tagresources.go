package actions

import (
	"maps"
	"slices"

	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

var (
	absentTagType = map[string]wire.Refusal{"ResourceType": {Status: 404, Code: "MissingParameter.ResourceType"}}

	tagResourcesAction = Action{
		Name:     "TagResources",
		required: []string{"RegionId", "ResourceType", "ResourceId.N", "Tag.N"},
		optional: []string{"Tag.N.Key", "Tag.N.Value", "Tag.N.key", "Tag.N.value"},
		absent:   absentTagType,
		about:    [][2]string{{"", "ResourceId"}},
		do:       tagResources,
	}
	untagResourcesAction = Action{
		Name:     "UntagResources",
		required: []string{"RegionId", "ResourceType", "ResourceId.N"},
		optional: []string{"TagKey.N", "All"},
		absent:   absentTagType,
		about:    [][2]string{{"", "ResourceId"}},
		do:       untagResources,
	}
	listTagResourcesAction = Action{
		Name:     "ListTagResources",
		required: []string{"RegionId", "ResourceType"},
		optional: []string{
			"ResourceId.N", "Tag.N.Key", "Tag.N.Value", "Tag.N.key", "Tag.N.value", "TagFilter.N.TagKey", "TagFilter.N.TagValues.N", "NextToken",
		},
		absent: absentTagType,
		lags:   true,
		do:     listTagResources,
	}
)

// maxTagTargets is how many resources one request may tag, untag or list.
const maxTagTargets = 50

// tagged is a resource that carries tags.
type tagged struct {
	id   string
	tags *state.TagSet
}

// tagsOf returns the tags of a resource, nil if it does not exist.
func tagsOf(req *Request, kind, id string) (*state.TagSet, *wire.Refusal) {
	switch kind {
	case "disk":
		if d := req.Region.Disk(id); d != nil {
			return &d.Tags, nil
		}
	case "instance":
		if i := req.Region.Instance(id); i != nil {
			return &i.Tags, nil
		}
	case "snapshot":
		if n := req.Region.Snapshot(id); n != nil {
			return &n.Tags, nil
		}
	case "snapshotgroup":
		if g := req.Region.Group(id); g != nil {
			return &g.Tags, nil
		}
	default:
		return nil, wire.Refuse(404, "InvalidResourceType.NotFound", "The specified ResourceType %q does not exist: disk, instance, snapshot or snapshotgroup.", kind)
	}
	return nil, nil
}

// taggable returns the resources of a type, the newest first but for instances.
func taggable(req *Request, kind string) []tagged {
	var list []tagged
	switch kind {
	case "instance":
		for i := range instancesFor(req) {
			list = append(list, tagged{i.ID, &i.Tags})
		}
	case "snapshot":
		for n := range shotsFor(req, nil, true) {
			list = append(list, tagged{n.ID, &n.Tags})
		}
	case "snapshotgroup":
		for g := range groupsFor(req) {
			list = append(list, tagged{g.ID, &g.Tags})
		}
	default:
		for d := range disksFor(req, nil, true) {
			list = append(list, tagged{d.ID, &d.Tags})
		}
	}
	return list
}

// tagTargets returns the resources that a request names, all of which must exist.
func tagTargets(req *Request) ([]tagged, *wire.Refusal) {
	kind, ids := req.Params["ResourceType"], req.Params.List("ResourceId")
	if slices.Contains(req.Action.required, "ResourceId") { // of the older calls
		ids = []string{req.Params["ResourceId"]}
	}
	if _, no := tagsOf(req, kind, ""); no != nil {
		return nil, no
	}
	if len(ids) > maxTagTargets {
		return nil, wire.Refuse(400, "NumberExceed.ResourceIds", "The ResourceIds parameter's number is exceed: at most %d.", maxTagTargets)
	}
	if len(ids) == 1 && kind == "disk" {
		req.Disk = ids[0]
	}
	var targets []tagged
	for _, id := range ids {
		tags, _ := tagsOf(req, kind, id)
		if tags == nil {
			return nil, wire.Refuse(404, "InvalidResourceId.NotFound", "The specified ResourceId %q is not found.", id)
		}
		req.Region.Touch(id)
		targets = append(targets, tagged{id, tags})
	}
	return targets, nil
}

// tagResources puts tags on resources: on all of them or on none.
func tagResources(req *Request) (wire.Object, *wire.Refusal) {
	targets, no := tagTargets(req)
	if no != nil {
		return nil, no
	}
	if list, no := req.Params.Tags(); no == nil && len(list) > state.MaxTags {
		return nil, wire.Refuse(400, "NumberExceed.Tags", "The Tags parameter's number is exceed: at most %d.", state.MaxTags)
	}
	tags, no := newTags(req)
	if no != nil {
		return nil, no
	}
	after := make([]map[string]string, len(targets))
	for i, t := range targets {
		after[i] = maps.Clone(t.tags.Current)
		maps.Copy(after[i], tags)
		if len(after[i]) > state.MaxTags {
			return nil, tooManyTags()
		}
	}
	for i, t := range targets {
		t.tags.Change(after[i], req.Now)
	}
	return nil, nil
}

// untagResources takes tags off resources: those named, or All.
func untagResources(req *Request) (wire.Object, *wire.Refusal) {
	targets, no := tagTargets(req)
	if no != nil {
		return nil, no
	}
	all, no := req.Params.Boolean("All", false)
	if no != nil {
		return nil, no
	}
	keys := req.Params.List("TagKey")
	switch {
	case len(keys) == 0 && !all:
		return nil, wire.Missing("TagKey.N")
	case len(keys) > state.MaxTags:
		return nil, wire.Refuse(400, "NumberExceed.Tags", "The Tags parameter's number is exceed: at most %d.", state.MaxTags)
	}
	for _, t := range targets {
		after := maps.Clone(t.tags.Current)
		maps.DeleteFunc(after, func(key, _ string) bool { return len(keys) == 0 || slices.Contains(keys, key) })
		t.tags.Change(after, req.Now)
	}
	return nil, nil
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
