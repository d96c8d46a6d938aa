package ecssim

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/topodisk/topodisk/ecssim/wire"
)

// The older calls for tags, of one resource each. New clients use
// TagResources, UntagResources and ListTagResources.
var (
	addTags = action{
		name:     "AddTags",
		required: []string{"RegionId", "ResourceType", "ResourceId", "Tag.N"},
		optional: []string{"Tag.N.Key", "Tag.N.Value", "Tag.N.key", "Tag.N.value"},
		absent:   absentTagType,
		do:       (*Server).addTags,
	}
	removeTags = action{
		name:     "RemoveTags",
		required: []string{"RegionId", "ResourceType", "ResourceId", "Tag.N"},
		optional: []string{"Tag.N.Key", "Tag.N.Value", "Tag.N.key", "Tag.N.value"},
		absent:   absentTagType,
		do:       (*Server).removeTags,
	}
	describeTags = action{
		name:     "DescribeTags",
		required: []string{"RegionId"},
		optional: []string{"ResourceType", "ResourceId", "Tag.N.Key", "Tag.N.Value", "Tag.N.key", "Tag.N.value", "Category", "PageNumber", "PageSize"},
		do:       (*Server).describeTags,
	}
)

// ofOne is the request of an older call as TagResources would have it.
func (x *exchange) ofOne() *exchange {
	inner := *x
	inner.Params = maps.Clone(x.Params)
	inner.Params["ResourceId.1"] = x.Params["ResourceId"]
	return &inner
}

// addTags puts tags on one resource.
func (s *Server) addTags(x *exchange) (wire.Object, *wire.Refusal) {
	inner := x.ofOne()
	body, no := s.tagResources(inner)
	x.disk = inner.disk
	return body, no
}

// removeTags takes tags off one resource: those of the keys, if they have the
// values that are given.
func (s *Server) removeTags(x *exchange) (wire.Object, *wire.Refusal) {
	inner := x.ofOne()
	targets, no := s.tagTargets(inner)
	x.disk = inner.disk
	if no != nil {
		return nil, no
	}
	list, no := x.Params.Tags()
	if no != nil {
		return nil, no
	}
	for _, t := range targets {
		after := maps.Clone(t.tags.Current)
		for _, tag := range list {
			if v, ok := after[tag.Key]; ok && (!tag.HasValue || tag.Value == v) {
				delete(after, tag.Key)
			}
		}
		t.tags.Change(after, x.now)
	}
	return nil, nil
}

// tagKinds are the resources that carry tags here, as counts name them.
var tagKinds = map[string]string{"disk": "Disk", "instance": "Instance", "snapshot": "Snapshot"}

// countedTag is a tag and how many resources of each kind carry it.
type countedTag struct {
	key, value string
	on         map[string]int
}

// describeTags lists tags with the number of the resources that carry them.
func (s *Server) describeTags(x *exchange) (wire.Object, *wire.Refusal) {
	kind := x.Params["ResourceType"]
	if kind != "" {
		if _, no := s.tagsOf(kind, ""); no != nil {
			return nil, no
		}
	}
	want, no := x.Params.Tags()
	if no != nil {
		return nil, no
	}
	page, no := s.readPage(x, wire.Paging{DefaultSize: 50, MaxSize: 100})
	if no != nil {
		return nil, no
	}
	rows := s.countTags(x, want)
	shown, reply := wire.Cut(page, rows, nil) // it has no pages by token
	reply["Tags"] = wire.Wrapped("Tag", wire.Each(shown, func(t *countedTag) wire.Object {
		counts := wire.Object{}
		for name, shownAs := range tagKinds {
			counts[shownAs] = t.on[name]
		}
		return wire.Object{"TagKey": t.key, "TagValue": t.value, "ResourceTypeCount": counts}
	}))
	return reply, nil
}

// countTags returns the tags of the resources that a request asks for, by key
// and value.
func (s *Server) countTags(x *exchange, want []wire.Tag) []*countedTag {
	counted := map[[2]string]*countedTag{}
	for kind := range tagKinds {
		if !x.Params.OneOf("ResourceType", kind) {
			continue
		}
		for _, t := range s.taggable(x, kind) {
			if !x.Params.OneOf("ResourceId", t.id) {
				continue
			}
			for key, value := range t.tags.Current {
				if !wanted(want, key, value) {
					continue
				}
				at := [2]string{key, value}
				if counted[at] == nil {
					counted[at] = &countedTag{key, value, map[string]int{}}
				}
				counted[at].on[kind]++
			}
		}
	}
	return slices.SortedFunc(maps.Values(counted), func(a, b *countedTag) int {
		return cmp.Or(strings.Compare(a.key, b.key), strings.Compare(a.value, b.value))
	})
}

// wanted tells whether a tag is one of those asked for; none asks for all.
func wanted(want []wire.Tag, key, value string) bool {
	return len(want) == 0 || slices.ContainsFunc(want, func(t wire.Tag) bool { return t.Key == key && (!t.HasValue || t.Value == value) })
}
