package actions

import (
	"maps"
	"slices"

	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

var untagResourcesAction = Action{
	Name:     "UntagResources",
	required: []string{"RegionId", "ResourceType", "ResourceId.N"},
	optional: []string{"TagKey.N", "All"},
	absent:   absentTagType,
	about:    [][2]string{{"", "ResourceId"}},
	do:       untagResources,
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
