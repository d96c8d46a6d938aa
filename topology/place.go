package topology

import (
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// place returns the requirement for terms, of which the one at first comes
// first and the others follow in a ring.
func place(terms []term, first int) *csi.TopologyRequirement {
	return &csi.TopologyRequirement{
		Requisite: topologies(terms),
		Preferred: topologies(slices.Concat(terms[first:], terms[:first])),
	}
}

func topologies(terms []term) []*csi.Topology {
	list := make([]*csi.Topology, 0, len(terms))
	for _, t := range terms {
		list = append(list, &csi.Topology{Segments: t.labels()})
	}
	return list
}

// placeOf returns which of the terms is the selected node's, and lets the
// node's own term stand there if it means the same. Failing that it is the
// first term that the node lies within: a class may allow a whole zone where
// nodes report a zone and a rack. A class that admits the node has such a term.
func placeOf(n *node, terms []term) int {
	for i, t := range terms {
		if t.identity == n.own.identity {
			terms[i] = n.own
			return i
		}
	}
	return max(0, slices.IndexFunc(terms, n.carries))
}

// spread returns which of n terms the claim of that name prefers. The claims
// of a StatefulSet ("data-web-0", "data-web-1", ...) take turns, and the claims
// of one Pod ("data-web-0", "logs-web-0") meet in one zone. Users of the
// upstream provisioner rely on its very numbers, so these are the same: FNV-1 of
// the StatefulSet's name plus the ordinal, in 32 bits.
func spread(claim string, n int) int {
	base, ordinal := splitOrdinal(claim)
	return int((hash(base) + ordinal) % uint32(n))
}

func hash(s string) uint32 {
	h := fnv.New32()
	h.Write([]byte(s))
	return h.Sum32()
}

// splitOrdinal parts a claim's name into what it shares with its siblings and
// its ordinal. A name that does not end in one is shared as a whole.
func splitOrdinal(claim string) (base string, ordinal uint32) {
	dash := strings.LastIndexByte(claim, '-')
	if dash < 0 {
		return claim, 0
	}
	number, err := strconv.ParseUint(claim[dash+1:], 10, 32)
	if err != nil {
		return claim, 0
	}
	base = claim[:dash]
	return base[strings.LastIndexByte(base, '-')+1:], uint32(number)
}

// ZoneOfTerm returns the zone that a term of a requirement names, empty if it
// names none.
func ZoneOfTerm(term *csi.Topology) string { return ZoneOfLabels(term.GetSegments()) }

// ZoneOfLabels returns the zone that a Node's labels name, empty if they name
// none. Kubernetes' own key wins over the driver's, if they disagree.
func ZoneOfLabels(labels map[string]string) string {
	if zone := labels[WellKnownZoneKey]; zone != "" {
		return zone
	}
	return labels[ZoneKey]
}
