package ecssim

import (
	"maps"
	"slices"
)

var (
	absentTagType = map[string]refusal{"ResourceType": {status: 404, code: "MissingParameter.ResourceType"}}

	tagResources = action{
		name:     "TagResources",
		required: []string{"RegionId", "ResourceType", "ResourceId.N", "Tag.N"},
		optional: []string{"Tag.N.Key", "Tag.N.Value", "Tag.N.key", "Tag.N.value"},
		absent:   absentTagType,
		do:       (*Server).tagResources,
	}
	untagResources = action{
		name:     "UntagResources",
		required: []string{"RegionId", "ResourceType", "ResourceId.N"},
		optional: []string{"TagKey.N", "All"},
		absent:   absentTagType,
		do:       (*Server).untagResources,
	}
	listTagResources = action{
		name:     "ListTagResources",
		required: []string{"RegionId", "ResourceType"},
		optional: []string{
			"ResourceId.N", "Tag.N.Key", "Tag.N.Value", "Tag.N.key", "Tag.N.value", "TagFilter.N.TagKey", "TagFilter.N.TagValues.N", "NextToken",
		},
		absent: absentTagType,
		do:     (*Server).listTagResources,
	}
)

// maxTagTargets is how many resources one request may tag, untag or list.
const maxTagTargets = 50

// tagged is a resource that carries tags.
type tagged struct {
	id   string
	tags *tagSet
}

// tagsOf returns the tags of a resource, nil if it does not exist.
func (s *Server) tagsOf(kind, id string) (*tagSet, *refusal) {
	switch kind {
	case "disk":
		if d := s.disks.byID[id]; d != nil {
			return &d.tags, nil
		}
	case "instance":
		if i := s.fleet.instances[id]; i != nil {
			return &i.tags, nil
		}
	case "snapshot":
		if n := s.snapshots.byID[id]; n != nil {
			return &n.tags, nil
		}
	case "snapshotgroup":
		if g := s.snapshots.group(id); g != nil {
			return &g.tags, nil
		}
	default:
		return nil, refuse(404, "InvalidResourceType.NotFound", "The specified ResourceType %q does not exist: disk, instance, snapshot or snapshotgroup.", kind)
	}
	return nil, nil
}

// taggable returns the resources of a type, the newest first but for instances.
func (s *Server) taggable(x *exchange, kind string) []tagged {
	var list []tagged
	switch kind {
	case "instance":
		for _, i := range s.instancesFor(x) {
			list = append(list, tagged{i.ID, &i.tags})
		}
	case "snapshot":
		for n := range s.shotsFor(x, nil, true) {
			list = append(list, tagged{n.id, &n.tags})
		}
	case "snapshotgroup":
		for g := range s.groupsFor(x) {
			list = append(list, tagged{g.id, &g.tags})
		}
	default:
		for d := range s.disksFor(x, nil, true) {
			list = append(list, tagged{d.id, &d.tags})
		}
	}
	return list
}

// tagTargets returns the resources that a request names, all of which must exist.
func (s *Server) tagTargets(x *exchange) ([]tagged, *refusal) {
	kind, ids := x.params["ResourceType"], x.params.list("ResourceId")
	if _, no := s.tagsOf(kind, ""); no != nil {
		return nil, no
	}
	if len(ids) > maxTagTargets {
		return nil, refuse(400, "NumberExceed.ResourceIds", "The ResourceIds parameter's number is exceed: at most %d.", maxTagTargets)
	}
	if len(ids) == 1 && kind == "disk" {
		x.disk = ids[0]
	}
	var targets []tagged
	for _, id := range ids {
		tags, _ := s.tagsOf(kind, id)
		if tags == nil {
			return nil, refuse(404, "InvalidResourceId.NotFound", "The specified ResourceId %q is not found.", id)
		}
		s.earlier.touch(id)
		targets = append(targets, tagged{id, tags})
	}
	return targets, nil
}

// tagResources puts tags on resources: on all of them or on none.
func (s *Server) tagResources(x *exchange) (object, *refusal) {
	targets, no := s.tagTargets(x)
	if no != nil {
		return nil, no
	}
	if list, no := x.params.tags(); no == nil && len(list) > maxTags {
		return nil, refuse(400, "NumberExceed.Tags", "The Tags parameter's number is exceed: at most %d.", maxTags)
	}
	list, no := x.params.newTags()
	if no != nil {
		return nil, no
	}
	after := make([]map[string]string, len(targets))
	for i, t := range targets {
		after[i] = maps.Clone(t.tags.current)
		for _, tag := range list {
			after[i][tag.key] = tag.value
		}
		if len(after[i]) > maxTags {
			return nil, tooManyTags()
		}
	}
	for i, t := range targets {
		t.tags.change(after[i], x.now)
	}
	return nil, nil
}

// untagResources takes tags off resources: those named, or All.
func (s *Server) untagResources(x *exchange) (object, *refusal) {
	targets, no := s.tagTargets(x)
	if no != nil {
		return nil, no
	}
	all, no := x.params.boolean("All", false)
	if no != nil {
		return nil, no
	}
	keys := x.params.list("TagKey")
	switch {
	case len(keys) == 0 && !all:
		return nil, missing("TagKey.N")
	case len(keys) > maxTags:
		return nil, refuse(400, "NumberExceed.Tags", "The Tags parameter's number is exceed: at most %d.", maxTags)
	}
	for _, t := range targets {
		after := maps.Clone(t.tags.current)
		maps.DeleteFunc(after, func(key, _ string) bool { return len(keys) == 0 || slices.Contains(keys, key) })
		t.tags.change(after, x.now)
	}
	return nil, nil
}

// listTagResources lists the tags of resources, found by ID or by tag, at
// most 50 tags a page.
func (s *Server) listTagResources(x *exchange) (object, *refusal) {
	found, no := s.findTagged(x)
	if no != nil {
		return nil, no
	}
	page, no := s.readTokenPage(x, paging{fallback: 50, minResults: 50, maxResults: 50})
	if no != nil {
		return nil, no
	}
	type row struct {
		place int
		o     object
	}
	var rows []row
	for _, t := range found {
		for _, key := range slices.Sorted(maps.Keys(t.tags.current)) {
			rows = append(rows, row{len(rows) + 1, object{
				"ResourceType": x.params["ResourceType"], "ResourceId": t.id, "TagKey": key, "TagValue": t.tags.current[key],
			}})
		}
	}
	shown, reply := cut(page, rows, func(r row) int { return r.place })
	reply["TagResources"] = wrapped("TagResource", each(shown, func(r row) object { return r.o }))
	return reply, nil
}

// findTagged returns the resources that have one of the IDs, if any are
// given, and all of the tags. IDs that don't exist are passed over.
func (s *Server) findTagged(x *exchange) ([]tagged, *refusal) {
	if _, no := s.tagsOf(x.params["ResourceType"], ""); no != nil {
		return nil, no
	}
	filters, no := x.params.tagFilters()
	if no != nil {
		return nil, no
	}
	want, no := x.params.tags()
	if no != nil {
		return nil, no
	}
	ids := x.params.list("ResourceId")
	switch {
	case len(ids) > maxTagTargets:
		return nil, refuse(400, "NumberExceed.ResourceIds", "The ResourceIds parameter's number is exceed: at most %d.", maxTagTargets)
	case len(want) > maxTags:
		return nil, refuse(400, "NumberExceed.Tags", "The Tags parameter's number is exceed: at most %d.", maxTags)
	case len(ids) == 0 && len(want) == 0 && len(filters) == 0:
		return nil, missing("ResourceId.N")
	}
	return slices.DeleteFunc(s.taggable(x, x.params["ResourceType"]), func(t tagged) bool {
		return len(ids) > 0 && !slices.Contains(ids, t.id) || !t.tags.matches(want, x.now, s.config.Latency.TagsVisible) ||
			!t.tags.passes(filters, x.now, s.config.Latency.TagsVisible)
	}), nil
}
