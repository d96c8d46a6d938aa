package actions

import (
	"maps"

	"github.com/topodisk/topodisk/ecssim/wire"
)

var removeTagsAction = Action{
	Name:     "RemoveTags",
	required: []string{"RegionId", "ResourceType", "ResourceId", "Tag.N"},
	tagged:   true,
	absent:   absentTagType,
	do:       removeTags,
}

// removeTags takes tags off one resource: those of the keys, if they have the
// values that are given.
func removeTags(req *Request) (wire.Object, *wire.Refusal) {
	targets, no := tagTargets(req)
	if no != nil {
		return nil, no
	}
	list, no := req.Params.Tags()
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
		t.tags.Change(after, req.Now)
	}
	return nil, nil
}
