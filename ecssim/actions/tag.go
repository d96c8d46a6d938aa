package actions

import (
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

// searchedTags returns the tags that a read asks for.
func searchedTags(req *Request) ([]wire.Tag, *wire.Refusal) {
	list, no := req.Params.Tags()
	if len(list) > state.MaxTags {
		return nil, wire.Refuse(400, "InvalidTagCount", "The specified tags are beyond the permitted range of %d.", state.MaxTags)
	}
	return list, no
}

// newTags returns the tags that a request wants to put on a resource.
func newTags(req *Request) (map[string]string, *wire.Refusal) {
	list, no := req.Params.Tags()
	if no != nil {
		return nil, no
	}
	for _, t := range list {
		if utf8.RuneCountInString(t.Key) > 128 || reserved(t.Key) || linked(t.Key) {
			return nil, wire.Refuse(400, "InvalidTagKey.Malformed", "The specified Tag.n.Key %q is not valid: 1 to 128 characters that don't begin with aliyun or acs: and hold no http:// or https://.", t.Key)
		}
		if utf8.RuneCountInString(t.Value) > 128 || linked(t.Value) {
			return nil, wire.Refuse(400, "InvalidTagValue.Malformed", "The specified Tag.n.Value %q is not valid: 0 to 128 characters that hold no http:// or https://.", t.Value)
		}
	}
	if len(list) > state.MaxTags {
		return nil, tooManyTags()
	}
	return wire.TagMap(list), nil
}

func tooManyTags() *wire.Refusal {
	return wire.Refuse(403, "QuotaExceed.Tags", "The specified number of tags exceeds the quota of %d a resource.", state.MaxTags)
}

func reserved(s string) bool {
	return strings.HasPrefix(s, "aliyun") || strings.HasPrefix(s, "acs:")
}

func linked(s string) bool { return strings.Contains(s, "http://") || strings.Contains(s, "https://") }

// renderTags shows tags as the replies of Describe actions do. Some clients read
// TagKey and TagValue, some Key and Value.
func renderTags(req *Request, t state.TagSet) wire.Object {
	form := req.Rules.Doubts.TagsAs
	list := []wire.Object{}
	for _, key := range slices.Sorted(maps.Keys(t.Current)) {
		o := wire.Object{}
		if form != "Key" {
			o["TagKey"], o["TagValue"] = key, t.Current[key]
		}
		if form != "TagKey" {
			o["Key"], o["Value"] = key, t.Current[key]
		}
		list = append(list, o)
	}
	return wire.Wrapped("Tag", list)
}

var absentTagType = map[string]wire.Refusal{"ResourceType": {Status: 404, Code: "MissingParameter.ResourceType"}}

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
		for n := range snapshotsFor(req, nil, true) {
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
