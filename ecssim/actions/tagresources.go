package actions

import (
	"maps"

	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

var tagResourcesAction = Action{
	Name:     "TagResources",
	required: []string{"RegionId", "ResourceType", "ResourceId.N", "Tag.N"},
	tagged:   true,
	absent:   absentTagType,
	about:    [][2]string{{"", "ResourceId"}},
	do:       tagResources,
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
