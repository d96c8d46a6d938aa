package wire

import (
	"slices"
	"strings"
)

// maxTagFilters is how many TagFilter.N a request may have.
const maxTagFilters = 5

// TagFilter finds resources that have a key with one of some values; without
// values, with any. A value may have asterisks, which stand for anything.
type TagFilter struct {
	key    string
	values []string
}

// TagFilters reads TagFilter.N.TagKey and TagFilter.N.TagValues.M.
func (p Parameters) TagFilters() ([]TagFilter, *Refusal) {
	byNumber := map[int]*TagFilter{}
	var order []int
	for _, v := range p.numberedNames("TagFilter") {
		if byNumber[v.n] == nil {
			byNumber[v.n] = &TagFilter{}
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
		return nil, Refuse(400, "NumberExceed.Tags", "The TagFilter parameter's number is exceed: at most %d.", maxTagFilters)
	}
	var filters []TagFilter
	for _, n := range order {
		if byNumber[n].key == "" {
			return nil, Refuse(400, "InvalidTagKey.Malformed", "The specified TagFilter.%d.TagKey is not valid: a key is missing.", n)
		}
		filters = append(filters, *byNumber[n])
	}
	return filters, nil
}

// PassFilters tells whether tags pass all filters.
func PassFilters(tags map[string]string, filters []TagFilter) bool {
	for _, f := range filters {
		value, ok := tags[f.key]
		if !ok || len(f.values) > 0 && !slices.ContainsFunc(f.values, func(pattern string) bool { return Like(value, pattern) }) {
			return false
		}
	}
	return true
}

// Like tells whether a text fits a pattern, whose asterisks stand for anything.
func Like(text, pattern string) bool {
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
