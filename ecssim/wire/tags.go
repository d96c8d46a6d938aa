package wire

// Tag is one key and its value, as a request gives it.
type Tag struct {
	Key, Value string
	HasValue   bool // it may be empty all the same
}

// Tags returns the tags Tag.N.Key and Tag.N.Value in the order of N. The old
// spellings Tag.N.key and Tag.N.value count too.
func (p Parameters) Tags() ([]Tag, *Refusal) {
	var list []Tag
	last := 0
	for _, v := range p.numberedNames("Tag") {
		if v.n != last {
			list = append(list, Tag{})
			last = v.n
		}
		t := &list[len(list)-1]
		switch v.field {
		case "Key", "key":
			t.Key = v.value
		case "Value", "value":
			t.Value, t.HasValue = v.value, true
		}
	}
	seen := map[string]bool{}
	for _, t := range list {
		if t.Key == "" {
			return nil, Refuse(400, "InvalidTagKey.Malformed", "The specified Tag.n.Key is not valid: a key is missing.")
		}
		if seen[t.Key] {
			return nil, Refuse(400, "Duplicate.TagKey", "The Tag.N.Key contain duplicate key: %q.", t.Key)
		}
		seen[t.Key] = true
	}
	return list, nil
}

// TagMap returns tags as a map.
func TagMap(list []Tag) map[string]string {
	m := map[string]string{}
	for _, t := range list {
		m[t.Key] = t.Value
	}
	return m
}

// HasTags tells whether tags have all that are wanted. A tag without a value
// stands for every value.
func HasTags(tags map[string]string, want []Tag) bool {
	for _, t := range want {
		if v, ok := tags[t.Key]; !ok || t.HasValue && v != t.Value {
			return false
		}
	}
	return true
}
