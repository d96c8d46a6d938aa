package topology

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// node is what the cluster says of one node, its Node and CSINode taken
// together. An Index replaces it when any of that changes.
type node struct {
	name       string
	exists     bool              // there is a Node
	labels     map[string]string // the Node's; shared with the informer, only read
	hasCSINode bool
	keys       []string // the driver's topology keys in the CSINode, sorted

	// What follows from the above.
	keySet   string   // the keys in one string
	zone     string   // the zone that the driver's keys, or else the labels, name
	conflict error    // why the driver's keys name no zone that can be relied on
	missing  []string // keys of the driver that the Node has no label for
	own      term     // the driver's keys with the Node's values, if none is missing
}

// derive fills in what follows from the Node and the CSINode.
func (n *node) derive() {
	n.keySet = strings.Join(n.keys, "\x00")
	n.zone, n.conflict = zoneOf(n.labels, n.keys)
	n.missing, n.own = nil, term{}
	segments := make([]segment, 0, len(n.keys))
	for _, k := range n.keys {
		if n.labels[k] == "" {
			n.missing = append(n.missing, k)
		}
		segments = append(segments, segment{k, n.labels[k]})
	}
	if len(n.missing) == 0 {
		n.own = newTerm(segments)
	}
}

// zoneOf returns the zone that the driver's keys name. A zone label that the
// driver does not report is no contradiction: a node whose well-known label is
// not its ECS zone reports the private key alone.
func zoneOf(labels map[string]string, keys []string) (string, error) {
	reports := func(key string) bool { return slices.Contains(keys, key) }
	private, wellKnown := labels[ZoneKey], labels[WellKnownZoneKey]
	switch {
	case reports(ZoneKey) && !reports(WellKnownZoneKey):
		return private, nil
	case reports(WellKnownZoneKey) && !reports(ZoneKey):
		return wellKnown, nil
	case private == "" || private == wellKnown:
		return wellKnown, nil
	case wellKnown == "":
		return private, nil
	case !reports(ZoneKey):
		return "", nil
	}
	return "", fmt.Errorf("labels %s=%q and %s=%q name different zones; they must agree", ZoneKey, private, WellKnownZoneKey, wellKnown)
}

// ready reports whether the node takes part in the answers: the driver runs
// there, its labels can be relied on, and none that the driver reports is
// missing. Labels that outlived the driver do not count.
func (n *node) ready() bool {
	return n.exists && len(n.keys) > 0 && n.conflict == nil && len(n.missing) == 0
}

// mislabelled returns the hostname label of a node whose zone labels contradict each other, empty for any other.
func (n *node) mislabelled() string {
	if n == nil || !n.exists || n.conflict == nil {
		return ""
	}
	return n.labels[corev1.LabelHostname]
}

// project returns the node's term in the given keys, or false if it lacks one.
// A zone may be spelled in either key or both, whatever the node carries, and
// the region may be missing beside a zone.
func (n *node) project(keys []string) (term, bool) {
	segments := make([]segment, 0, len(keys)+1)
	zoned := slices.ContainsFunc(keys, IsZoneKey)
	for _, k := range keys {
		if IsZoneKey(k) {
			continue
		}
		v := n.labels[k]
		if v == "" {
			if k == RegionKey && zoned {
				continue
			}
			return term{}, false
		}
		segments = append(segments, segment{k, v})
	}
	if zoned {
		if n.zone == "" {
			return term{}, false
		}
		segments = append(segments, n.zoneSegments(keys)...)
	}
	return newTerm(segments), true
}

// zoneSegments returns the node's zone in those of the keys that it carries,
// or else in the key that it does carry.
func (n *node) zoneSegments(keys []string) []segment {
	var wanted, other []segment
	for _, k := range [...]string{ZoneKey, WellKnownZoneKey} {
		if n.labels[k] != n.zone {
			continue
		}
		if slices.Contains(keys, k) {
			wanted = append(wanted, segment{k, n.zone})
		} else {
			other = append(other, segment{k, n.zone})
		}
	}
	if len(wanted) > 0 {
		return wanted
	}
	return other
}

// carries reports whether the node lies within the term.
func (n *node) carries(t term) bool {
	for _, s := range t.segments {
		if IsZoneKey(s.key) {
			if s.value != n.zone {
				return false
			}
		} else if s.value != n.labels[s.key] {
			return false
		}
	}
	return true
}

// labelled returns the node's labels with the prefix, but those without a value.
func (n *node) labelled(prefix string) map[string]string {
	if prefix == "" {
		return nil
	}
	found := map[string]string{}
	for k, v := range n.labels {
		if v != "" && strings.HasPrefix(k, prefix) {
			found[k] = v
		}
	}
	return found
}
