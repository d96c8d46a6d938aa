package ecssim

import "time"

// tagSet is the tags of a resource, and those that searches still go by.
type tagSet struct {
	current  map[string]string
	previous map[string]string
	changed  time.Time
}

func newTagSet(tags map[string]string, now time.Time) tagSet {
	return tagSet{current: tags, changed: now}
}

// change puts other tags in the place of the current ones.
func (s *tagSet) change(tags map[string]string, now time.Time) {
	s.previous, s.current, s.changed = s.current, tags, now
}

// searched returns the tags that searches go by, lag after a change.
func (s *tagSet) searched(now time.Time, lag time.Duration) map[string]string {
	if now.Before(s.changed.Add(lag)) {
		return s.previous
	}
	return s.current
}
