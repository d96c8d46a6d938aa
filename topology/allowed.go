package topology

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxGivenTerms bounds the terms that a class may spell out: a few keys of a
// few values each multiply into a request that no driver wants to read.
const maxGivenTerms = 1000

// class is a StorageClass's allowedTopologies, read and found sound.
type class struct {
	terms []allowedTerm
	// void is a list of one empty term. Kubernetes accepts it, and its
	// scheduler takes it to match no node at all.
	void bool
}

// allowedTerm is what a node has to satisfy: one of the zones, if the term
// names any, and every one of the conditions.
type allowedTerm struct {
	zoneKeys   []string // the zone keys that the term uses, sorted
	zones      []string // the zones that all of them allow, sorted
	conditions []condition
}

// condition is a label and the values that it may have, sorted.
type condition struct {
	key    string
	values []string
}

// readClass reads allowedTopologies, or says which field is wrong and what it may be.
func readClass(allowed []corev1.TopologySelectorTerm) (class, error) {
	if len(allowed) == 1 && len(allowed[0].MatchLabelExpressions) == 0 {
		return class{void: true}, nil
	}
	var c class
	for i, t := range allowed {
		read, err := readTerm(t, field.NewPath("allowedTopologies").Index(i))
		if err != nil {
			return class{}, &Error{Reason: Invalid, Err: err}
		}
		c.terms = append(c.terms, read)
	}
	return c, nil
}

const withoutExpressions = "a term without expressions matches no node; remove it or give it a key and values"

func readTerm(t corev1.TopologySelectorTerm, path *field.Path) (allowedTerm, error) {
	path = path.Child("matchLabelExpressions")
	if len(t.MatchLabelExpressions) == 0 {
		return allowedTerm{}, field.Required(path, withoutExpressions)
	}
	var read allowedTerm
	seen := map[string]bool{}
	for i, e := range t.MatchLabelExpressions {
		cond, err := readCondition(e, path.Index(i))
		if err != nil {
			return allowedTerm{}, err
		}
		if seen[cond.key] {
			return allowedTerm{}, field.Invalid(path.Index(i).Child("key"), cond.key, "a term may name each key once; put all its values into one expression")
		}
		seen[cond.key] = true
		if IsZoneKey(cond.key) {
			if err := read.limitZones(cond, path); err != nil {
				return allowedTerm{}, err
			}
			continue
		}
		read.conditions = append(read.conditions, cond)
	}
	slices.Sort(read.zoneKeys)
	slices.SortFunc(read.conditions, func(a, b condition) int { return strings.Compare(a.key, b.key) })
	return read, nil
}

func readCondition(e corev1.TopologySelectorLabelRequirement, path *field.Path) (condition, error) {
	if wrong := validation.IsQualifiedName(e.Key); len(wrong) > 0 {
		return condition{}, field.Invalid(path.Child("key"), e.Key, "must be the key of a label: "+strings.Join(wrong, "; "))
	}
	if len(e.Values) == 0 {
		return condition{}, field.Required(path.Child("values"), fmt.Sprintf("key %q needs at least one value", e.Key))
	}
	for i, v := range e.Values {
		if v == "" {
			return condition{}, field.Required(path.Child("values").Index(i), fmt.Sprintf("key %q cannot have an empty value, which counts as no label", e.Key))
		}
		if wrong := validation.IsValidLabelValue(v); len(wrong) > 0 {
			return condition{}, field.Invalid(path.Child("values").Index(i), v, "must be the value of a label: "+strings.Join(wrong, "; "))
		}
	}
	values := slices.Clone(e.Values)
	slices.Sort(values)
	return condition{e.Key, slices.Compact(values)}, nil
}

// limitZones adds one zone key's values: a zone must be in the list of each key.
func (t *allowedTerm) limitZones(c condition, path *field.Path) error {
	t.zoneKeys = append(t.zoneKeys, c.key)
	if len(t.zoneKeys) == 1 {
		t.zones = c.values
		return nil
	}
	both := slices.DeleteFunc(slices.Clone(c.values), func(zone string) bool { return !slices.Contains(t.zones, zone) })
	if len(both) == 0 {
		return field.Invalid(path, fmt.Sprintf("%s in %v and %s in %v", t.zoneKeys[0], t.zones, c.key, c.values),
			"both keys name a node's zone and must have a zone in common")
	}
	t.zones = both
	return nil
}

// admits reports whether the class, which is not void, allows the node. No
// terms allow every node.
func (c class) admits(n *node) bool {
	return len(c.terms) == 0 || matchesAny(c.terms, n)
}

func matchesAny(terms []allowedTerm, n *node) bool {
	return slices.ContainsFunc(terms, func(t allowedTerm) bool { return t.matches(n) })
}

// matches reports whether the node's zone and labels satisfy the term.
func (t allowedTerm) matches(n *node) bool {
	if len(t.zoneKeys) > 0 && !slices.Contains(t.zones, n.zone) {
		return false
	}
	for _, c := range t.conditions {
		if !slices.Contains(c.values, n.labels[c.key]) {
			return false
		}
	}
	return true
}

// asGiven reports whether the term can be sent to the driver as it stands: it
// names a zone, which a disk needs, and no more than keys that the driver
// knows. Any other term describes nodes, and it is their zones that count; so
// does one of several regions, for only nodes tell which zone is in which.
func (t allowedTerm) asGiven(driverKeys map[string]int) bool {
	if len(t.zoneKeys) == 0 {
		return false
	}
	return !slices.ContainsFunc(t.conditions, func(c condition) bool {
		return driverKeys[c.key] == 0 || c.key == RegionKey && len(c.values) > 1
	})
}

// split parts the terms that are sent as they stand from those that describe nodes.
func (c class) split(driverKeys map[string]int) (given, described []allowedTerm) {
	for _, t := range c.terms {
		if t.asGiven(driverKeys) {
			given = append(given, t)
		} else {
			described = append(described, t)
		}
	}
	return given, described
}

// spellOut returns every combination of values of the terms, unless there are too many.
func spellOut(given []allowedTerm) ([]term, error) {
	total := 0
	for _, t := range given {
		total += t.combinations(maxGivenTerms + 1 - total)
		if total > maxGivenTerms {
			return nil, refuse(Invalid, "", "allowedTopologies: the values of its keys combine to more than the %d topologies that are allowed; name fewer keys or values", maxGivenTerms)
		}
	}
	terms := make([]term, 0, total)
	for _, t := range given {
		terms = t.appendCombinations(terms)
	}
	return terms, nil
}

// combinations returns the number of terms that t stands for. It stops
// counting at the limit, long before the number overflows.
func (t allowedTerm) combinations(limit int) int {
	n := len(t.zones)
	for _, c := range t.conditions {
		if n >= limit {
			return limit
		}
		n *= len(c.values)
	}
	return n
}

func (t allowedTerm) appendCombinations(terms []term) []term {
	partial := make([][]segment, 0, len(t.zones))
	for _, zone := range t.zones {
		var segments []segment
		for _, key := range t.zoneKeys {
			segments = append(segments, segment{key, zone})
		}
		partial = append(partial, segments)
	}
	for _, c := range t.conditions {
		var longer [][]segment
		for _, segments := range partial {
			for _, v := range c.values {
				longer = append(longer, append(slices.Clone(segments), segment{c.key, v}))
			}
		}
		partial = longer
	}
	for _, segments := range partial {
		terms = append(terms, newTerm(segments))
	}
	return terms
}

// String returns the term in words.
func (t allowedTerm) String() string {
	var words []string
	if len(t.zoneKeys) > 0 {
		words = append(words, fmt.Sprintf("%s in %v", strings.Join(t.zoneKeys, " and "), t.zones))
	}
	for _, c := range t.conditions {
		words = append(words, fmt.Sprintf("%s in %v", c.key, c.values))
	}
	return strings.Join(words, ", ")
}

// String returns the class's terms in words.
func (c class) String() string {
	var words []string
	for _, t := range c.terms {
		words = append(words, t.String())
	}
	return strings.Join(words, "; or ")
}

// spellTerms names a list of terms; equal lists have equal names.
func spellTerms(terms []allowedTerm) string {
	var b strings.Builder
	word := func(s string) { b.WriteString(s); b.WriteByte(0) }
	for _, t := range terms {
		// The zone's keys do not matter: a node is matched by its zone.
		if len(t.zoneKeys) > 0 {
			word(WellKnownZoneKey)
			word(strings.Join(t.zones, ","))
		}
		for _, c := range t.conditions {
			word(c.key)
			word(strings.Join(c.values, ","))
		}
		b.WriteByte('\n')
	}
	return b.String()
}
