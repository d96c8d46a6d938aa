package topology

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// ZonesOfVolume returns the zones that a PersistentVolume's node affinity ties
// it to, sorted, whichever key names them. Terms are alternatives, so it is tied
// to the zones of all of them together, and to none if there is no affinity or
// one of the terms names no zone.
func ZonesOfVolume(pv *corev1.PersistentVolume) []string { return AffinityValues(pv, IsZoneKey) }

// AffinityValues returns what the node affinity of a PersistentVolume demands of
// labels that mean one thing, as ZonesOfVolume does of a zone. Within a term a
// value must be among those of each such label; only what is demanded by operator
// In counts.
func AffinityValues(pv *corev1.PersistentVolume, isKey func(string) bool) []string {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return nil
	}
	var all []string
	for _, term := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		values, named := valuesOfTerm(term, isKey)
		switch empty := len(term.MatchExpressions)+len(term.MatchFields) == 0; {
		case empty: // it matches no node
		case !named:
			return nil
		default:
			all = append(all, values...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// valuesOfTerm returns the values that all of a term's labels of those keys may have; named is false if it has none of them.
func valuesOfTerm(term corev1.NodeSelectorTerm, isKey func(string) bool) (values []string, named bool) {
	for _, e := range term.MatchExpressions {
		if e.Operator != corev1.NodeSelectorOpIn || !isKey(e.Key) {
			continue
		}
		if !named {
			values, named = slices.Clone(e.Values), true
			continue
		}
		values = slices.DeleteFunc(values, func(value string) bool { return !slices.Contains(e.Values, value) })
	}
	return values, named
}
