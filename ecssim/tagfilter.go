package ecssim

import (
	"slices"
	"strings"
	"time"
)

// maxTagFilters is how many TagFilter.N a request may have.
const maxTagFilters = 5

// tagFilter finds resources that have a key with one of some values; without
// values, with any. A value may have asterisks, which stand for anything.
type tagFilter struct {
	key    string
	values []string
}

// tagFilters reads TagFilter.N.TagKey and TagFilter.N.TagValues.M.
func (p parameters) tagFilters() ([]tagFilter, *refusal) {
	byNumber := map[int]*tagFilter{}
	var order []int
	for _, v := range p.numberedNames("TagFilter") {
		if byNumber[v.n] == nil {
			byNumber[v.n] = &tagFilter{}
			order = append(order, v.n)
		}
		f := byNumber[v.n]
		if v.field == "TagKey" {
			f.key = v.value
		} else if strings.HasPrefix(v.field, "TagValues.") {
			f.values = append(f.values, v.value)
		}
	}
	if len(order) > maxTagFilters {
		return nil, refuse(400, "NumberExceed.Tags", "The TagFilter parameter's number is exceed: at most %d.", maxTagFilters)
	}
	var filters []tagFilter
	for _, n := range order {
		if byNumber[n].key == "" {
			return nil, refuse(400, "InvalidTagKey.Malformed", "The specified TagFilter.%d.TagKey is not valid: a key is missing.", n)
		}
		filters = append(filters, *byNumber[n])
	}
	return filters, nil
}

// passes tells whether a search by filters finds the resource, lag after a
// change of its tags.
func (s *tagSet) passes(filters []tagFilter, now time.Time, lag time.Duration) bool {
	tags := s.current
	if now.Before(s.changed.Add(lag)) {
		tags = s.previous
	}
	for _, f := range filters {
		value, ok := tags[f.key]
		if !ok || len(f.values) > 0 && !slices.ContainsFunc(f.values, func(pattern string) bool { return like(value, pattern) }) {
			return false
		}
	}
	return true
}

// like tells whether a text fits a pattern, whose asterisks stand for anything.
func like(text, pattern string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return text == pattern
	}
	text, ok := strings.CutPrefix(text, parts[0])
	if !ok {
		return false
	}
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(text, part)
		if i < 0 {
			return false
		}
		text = text[i+len(part):]
	}
	return strings.HasSuffix(text, parts[len(parts)-1])
}
