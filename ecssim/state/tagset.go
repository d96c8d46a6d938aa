package state

import "time"

// MaxTags is how many tags a resource may carry, and a request may name.
const MaxTags = 20

// TagSet is the tags of a resource, and those that searches still go by.
type TagSet struct {
	Current  map[string]string
	previous map[string]string
	changed  time.Time
}

// NewTagSet returns the tags of a resource that is made.
func NewTagSet(tags map[string]string, now time.Time) TagSet {
	return TagSet{Current: tags, changed: now}
}

// Change puts other tags in the place of the current ones.
func (s *TagSet) Change(tags map[string]string, now time.Time) {
	s.previous, s.Current, s.changed = s.Current, tags, now
}

// Searched returns the tags that searches go by, lag after a change.
func (s *TagSet) Searched(now time.Time, lag time.Duration) map[string]string {
	if now.Before(s.changed.Add(lag)) {
		return s.previous
	}
	return s.Current
}
