package actions

import (
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/topodisk/topodisk/ecssim/state"
	"github.com/topodisk/topodisk/ecssim/wire"
)

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

// tags shows tags as the replies of Describe actions do. Some clients read
// TagKey and TagValue, some Key and Value.
func tags(req *Request, t state.TagSet) []wire.Object {
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
	return list
}
