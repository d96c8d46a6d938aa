package topology

import (
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
)

// NodeAffinity returns the affinity of a PersistentVolume whose volume is
// accessible from any of the topologies that the driver returned. Topologies
// without segments say nothing and are left out; nil means that there is
// nothing to say, for the API server refuses an affinity without terms.
// Equal topologies become one term, and terms and keys are sorted, so equal
// answers of the driver make equal PersistentVolumes.
func NodeAffinity(accessible []*csi.Topology) *corev1.VolumeNodeAffinity {
	var terms []term
	for _, t := range accessible {
		if len(t.GetSegments()) > 0 {
			terms = append(terms, termOf(t.GetSegments()))
		}
	}
	if len(terms) == 0 {
		return nil
	}
	slices.SortFunc(terms, func(t, u term) int { return strings.Compare(t.spelling, u.spelling) })
	terms = slices.CompactFunc(terms, func(t, u term) bool { return t.spelling == u.spelling })
	selector := &corev1.NodeSelector{}
	for _, t := range terms {
		selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, selectorTerm(t))
	}
	return &corev1.VolumeNodeAffinity{Required: selector}
}

func selectorTerm(t term) corev1.NodeSelectorTerm {
	var out corev1.NodeSelectorTerm
	for _, s := range t.segments {
		out.MatchExpressions = append(out.MatchExpressions, corev1.NodeSelectorRequirement{
			Key:      s.key,
			Operator: corev1.NodeSelectorOpIn,
			Values:   []string{s.value},
		})
	}
	return out
}
