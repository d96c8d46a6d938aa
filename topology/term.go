package topology

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// segment is one label of a topology.
type segment struct{ key, value string }

// term is one topology: the labels that a node has to carry, sorted by key.
// A term is never changed once it is made, so any number of holders may share it.
type term struct {
	segments []segment
	// identity is what the term means, whichever keys it spells the zone in.
	identity string
	// width is the number of labels in the identity.
	width int
	// spelling is the term label by label.
	spelling string
}

// newTerm takes over segments, which hold each key once.
func newTerm(segments []segment) term {
	sortByKey(segments)
	meaning := meaningOf(segments)
	return term{segments: segments, identity: spell(meaning), width: len(meaning), spelling: spell(segments)}
}

// meaningOf reduces labels to what they say about a place: the two zone keys
// are one, and the region adds nothing to a zone, which has only one.
func meaningOf(segments []segment) []segment {
	meaning := make([]segment, 0, len(segments))
	zone := ""
	for _, s := range segments {
		if IsZoneKey(s.key) {
			zone = s.value
		}
	}
	for _, s := range segments {
		switch {
		case IsZoneKey(s.key), s.key == RegionKey && zone != "":
		default:
			meaning = append(meaning, s)
		}
	}
	if zone != "" {
		meaning = append(meaning, segment{WellKnownZoneKey, zone})
		sortByKey(meaning)
	}
	return meaning
}

// spell joins labels so that no two lists of labels read alike and that
// strings compare as the lists do: no label holds a zero byte.
func spell(segments []segment) string {
	var b strings.Builder
	for _, s := range segments {
		b.WriteString(s.key)
		b.WriteByte(0)
		b.WriteString(s.value)
		b.WriteByte(0)
	}
	return b.String()
}

func sortByKey(segments []segment) {
	slices.SortFunc(segments, func(a, b segment) int { return strings.Compare(a.key, b.key) })
}

// IsZoneKey says whether a label of the key names a zone: ZoneKey and WellKnownZoneKey do.
func IsZoneKey(key string) bool { return key == ZoneKey || key == WellKnownZoneKey }

func (t term) has(key string) bool {
	return slices.ContainsFunc(t.segments, func(s segment) bool { return s.key == key })
}

// compare orders terms by number of labels, then label by label. It is the
// order in which claims are spread, so it must not hang on the spelling.
func (t term) compare(u term) int {
	return cmp.Or(cmp.Compare(t.width, u.width), strings.Compare(t.identity, u.identity))
}

// fuller orders terms of one identity: the one with more labels comes first,
// for it leaves the driver the choice of key, then the one with Kubernetes' own key.
func (t term) fuller(u term) int {
	return cmp.Or(
		-cmp.Compare(len(t.segments), len(u.segments)),
		-cmp.Compare(btoi(t.has(WellKnownZoneKey)), btoi(u.has(WellKnownZoneKey))),
		strings.Compare(t.spelling, u.spelling),
	)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// merge sorts terms in place and keeps the fullest one of each identity.
func merge(terms []term) []term {
	slices.SortFunc(terms, func(t, u term) int { return cmp.Or(t.compare(u), t.fuller(u)) })
	return slices.CompactFunc(terms, func(t, u term) bool { return t.identity == u.identity })
}

// with returns the term with more labels added.
func (t term) with(more map[string]string) term {
	if len(more) == 0 {
		return t
	}
	labels := t.labels()
	maps.Copy(labels, more)
	return termOf(labels)
}

func termOf(labels map[string]string) term {
	segments := make([]segment, 0, len(labels))
	for k, v := range labels {
		segments = append(segments, segment{k, v})
	}
	return newTerm(segments)
}

// labels returns the term as a map of the caller's own.
func (t term) labels() map[string]string {
	labels := make(map[string]string, len(t.segments))
	for _, s := range t.segments {
		labels[s.key] = s.value
	}
	return labels
}
