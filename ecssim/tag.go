package ecssim

import (
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// maxTags is how many tags a resource may carry, and a request may name.
const maxTags = 20

// tag is one key and its value, as a request gives it.
type tag struct {
	key, value string
	hasValue   bool // it may be empty all the same
}

// tags returns the tags Tag.N.Key and Tag.N.Value in the order of N. The old
// spellings Tag.N.key and Tag.N.value count too.
func (p parameters) tags() ([]tag, *refusal) {
	var list []tag
	last := 0
	for _, v := range p.numberedNames("Tag") {
		if v.n != last {
			list = append(list, tag{})
			last = v.n
		}
		t := &list[len(list)-1]
		switch v.field {
		case "Key", "key":
			t.key = v.value
		case "Value", "value":
			t.value, t.hasValue = v.value, true
		}
	}
	seen := map[string]bool{}
	for _, t := range list {
		if t.key == "" {
			return nil, refuse(400, "InvalidTagKey.Malformed", "The specified Tag.n.Key is not valid: a key is missing.")
		}
		if seen[t.key] {
			return nil, refuse(400, "Duplicate.TagKey", "The Tag.N.Key contain duplicate key: %q.", t.key)
		}
		seen[t.key] = true
	}
	return list, nil
}

// newTags returns the tags that a request wants to put on a resource.
func (p parameters) newTags() ([]tag, *refusal) {
	list, no := p.tags()
	if no != nil {
		return nil, no
	}
	for _, t := range list {
		if utf8.RuneCountInString(t.key) > 128 || reserved(t.key) || linked(t.key) {
			return nil, refuse(400, "InvalidTagKey.Malformed", "The specified Tag.n.Key %q is not valid: 1 to 128 characters that don't begin with aliyun or acs: and hold no http:// or https://.", t.key)
		}
		if utf8.RuneCountInString(t.value) > 128 || linked(t.value) {
			return nil, refuse(400, "InvalidTagValue.Malformed", "The specified Tag.n.Value %q is not valid: 0 to 128 characters that hold no http:// or https://.", t.value)
		}
	}
	if len(list) > maxTags {
		return nil, tooManyTags()
	}
	return list, nil
}

func tooManyTags() *refusal {
	return refuse(403, "QuotaExceed.Tags", "The specified number of tags exceeds the quota of %d a resource.", maxTags)
}

func reserved(s string) bool {
	return strings.HasPrefix(s, "aliyun") || strings.HasPrefix(s, "acs:")
}

func linked(s string) bool { return strings.Contains(s, "http://") || strings.Contains(s, "https://") }

// tagSet is the tags of a resource, and those that searches still go by.
type tagSet struct {
	current  map[string]string
	previous map[string]string
	changed  time.Time
}

func newTagSet(list []tag, now time.Time) tagSet {
	s := tagSet{current: map[string]string{}, changed: now}
	for _, t := range list {
		s.current[t.key] = t.value
	}
	return s
}

// change puts other tags in the place of the current ones.
func (s *tagSet) change(tags map[string]string, now time.Time) {
	s.previous, s.current, s.changed = s.current, tags, now
}

// matches tells whether a search by tags finds the resource, lag after a
// change. A tag without a value finds every value.
func (s *tagSet) matches(want []tag, now time.Time, lag time.Duration) bool {
	tags := s.current
	if now.Before(s.changed.Add(lag)) {
		tags = s.previous
	}
	for _, t := range want {
		if v, ok := tags[t.key]; !ok || t.hasValue && v != t.value {
			return false
		}
	}
	return true
}

// tags shows tags as the replies of Describe actions do. Some clients read
// TagKey and TagValue, some Key and Value.
func (s *Server) tags(t tagSet) []object {
	form := s.config.Doubts.TagsAs
	list := []object{}
	for _, key := range slices.Sorted(maps.Keys(t.current)) {
		o := object{}
		if form != "Key" {
			o["TagKey"], o["TagValue"] = key, t.current[key]
		}
		if form != "TagKey" {
			o["Key"], o["Value"] = key, t.current[key]
		}
		list = append(list, o)
	}
	return list
}
