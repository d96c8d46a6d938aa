package actions

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/topodisk/topodisk/ecssim/wire"
)

var describeTagsAction = Action{
	Name:     "DescribeTags",
	required: []string{"RegionId"},
	optional: []string{"ResourceType", "ResourceId", "Category", "PageNumber", "PageSize"},
	tagged:   true,
	lags:     true,
	do:       describeTags,
}

// tagKinds are the resources that carry tags here, as counts name them.
var tagKinds = map[string]string{"disk": "Disk", "instance": "Instance", "snapshot": "Snapshot"}

// countedTag is a tag and how many resources of each kind carry it.
type countedTag struct {
	key, value string
	on         map[string]int
}

// describeTags lists tags with the number of the resources that carry them.
func describeTags(req *Request) (wire.Object, *wire.Refusal) {
	kind := req.Params["ResourceType"]
	if kind != "" {
		if _, no := tagsOf(req, kind, ""); no != nil {
			return nil, no
		}
	}
	want, no := req.Params.Tags()
	if no != nil {
		return nil, no
	}
	page, no := readPage(req, wire.Paging{DefaultSize: 50, MaxSize: 100})
	if no != nil {
		return nil, no
	}
	rows := countTags(req, want)
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
func countTags(req *Request, want []wire.Tag) []*countedTag {
	counted := map[[2]string]*countedTag{}
	for kind := range tagKinds {
		if !req.Params.OneOf("ResourceType", kind) {
			continue
		}
		for _, t := range taggable(req, kind) {
			if !req.Params.OneOf("ResourceId", t.id) {
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
