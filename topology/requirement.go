package topology

import (
	"maps"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Require answers where the question's volume may live (Requisite) and in
// which order that should be tried (Preferred, a permutation of Requisite), as
// the CSI specification's TopologyRequirement. No requirement and no error
// means that there is no constraint, as for a class whose allowedTopologies
// are a single empty term. An error is an *Error with a Reason.
//
//	selected node  strict  allowed   answer
//	yes            yes     any       the node's term, if the class admits the node
//	yes            no      none      the terms of all nodes in the node's keys, the node's first
//	yes            no      some      the allowed terms, the node's first, if the class admits the node
//	no             -       some      the allowed terms, rotated by the claim's name
//	no             -       none      the terms of all nodes in their usual keys, rotated by the
//	                                 claim's name, if the question says Immediate; else no constraint
//
// The answer is the caller's own: nothing in it is shared.
func (x *Index) Require(q Question) (*csi.TopologyRequirement, error) {
	c, err := readClass(q.Allowed)
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if q.SelectedNode != "" {
		return x.requireNear(q, c)
	}
	return x.requireAnywhere(q, c)
}

// requireNear answers for a claim with a selected node.
func (x *Index) requireNear(q Question, c class) (*csi.TopologyRequirement, error) {
	n, err := x.selected(q.SelectedNode)
	if err != nil {
		return nil, err
	}
	if c.void {
		return nil, voidWith(q)
	}
	if !c.admits(n) {
		return nil, refuse(NodeNotAllowed, n.name, "it is in zone %q and outside of the class's allowedTopologies: %s", n.zone, c)
	}
	terms := []term{n.own}
	if !q.Strict {
		if terms, err = x.candidates(c, n.keys); err != nil {
			return nil, err
		}
	}
	first := placeOf(n, terms)
	// What else a node says of itself, such as the disk categories that it
	// takes, narrows the choice of disk but not of place. It is no topology key,
	// for those are fixed when the plugin registers and unknown to autoscalers.
	// A node that says nothing sets no limit.
	terms[first] = terms[first].with(n.labelled(q.ExtraLabelPrefix))
	return place(terms, first), nil
}

// voidWith returns what speaks against a class whose allowedTopologies are a
// single empty term for a claim with a selected node: a strict answer has to be
// a term that the class allows, and there is none.
func voidWith(q Question) error {
	if !q.Strict {
		return nil
	}
	path := field.NewPath("allowedTopologies").Index(0).Child("matchLabelExpressions")
	return &Error{Reason: Invalid, Err: field.Required(path, withoutExpressions)}
}

// requireAnywhere answers for a claim without a selected node.
func (x *Index) requireAnywhere(q Question, c class) (*csi.TopologyRequirement, error) {
	if c.void || len(c.terms) == 0 && !q.Immediate {
		return nil, nil
	}
	terms, err := x.candidates(c, x.usualKeys())
	if err != nil {
		return nil, err
	}
	if len(terms) == 0 {
		return nil, x.noTopology(c)
	}
	return place(terms, spread(q.ClaimName, len(terms))), nil
}

// selected returns the selected node, or why it cannot be relied on.
func (x *Index) selected(name string) (*node, error) {
	n := x.nodes[name]
	switch {
	case n == nil || !n.exists:
		return nil, refuse(NodeGone, name, "the Node does not exist")
	case !n.hasCSINode:
		return nil, refuse(NodeUnready, name, "it has no CSINode yet; driver %s has to register there", x.driver)
	case len(n.keys) == 0:
		return nil, refuse(NodeUnready, name, "its CSINode has no topology keys of driver %s; the driver has to register there", x.driver)
	case n.conflict != nil:
		return nil, &Error{Reason: NodeMislabelled, Node: name, Err: n.conflict}
	case len(n.missing) > 0:
		return nil, refuse(NodeUnready, name, "it lacks the labels %q that driver %s reports there", n.missing, x.driver)
	}
	return n, nil
}

// candidates returns the terms that the class allows, in order: those that it
// spells out, and those, in the given keys, of the nodes that it describes. A
// class without terms describes every node. The slice is the caller's.
func (x *Index) candidates(c class, keys []string) ([]term, error) {
	if len(c.terms) == 0 {
		return slices.Clone(x.termsOfNodes(keys, nil)), nil
	}
	given, described := c.split(x.driverKeys)
	terms, err := spellOut(given)
	if err != nil {
		return nil, err
	}
	if len(described) > 0 {
		terms = append(terms, x.termsOfNodes(keys, described)...)
	}
	return merge(terms), nil
}

// termsOfNodes returns the terms of the nodes that match; none if no keys are known.
func (x *Index) termsOfNodes(keys []string, match []allowedTerm) []term {
	if len(keys) == 0 {
		return nil
	}
	return x.view(keys, match).terms()
}

// noTopology says why no node answers a question.
func (x *Index) noTopology(c class) error {
	what := "no node carries all the labels that the driver reports"
	switch {
	case len(x.driverKeys) == 0:
		what = "the driver has not registered on any node with topology keys"
	case len(x.keySets) > 0 && len(c.terms) > 0:
		what = "no node with the driver matches the class's allowedTopologies: " + c.String()
	}
	if len(x.conflicts) == 0 {
		return refuse(NoTopology, "", "driver %s: %s", x.driver, what)
	}
	name := slices.Min(slices.Collect(maps.Keys(x.conflicts)))
	return refuse(NoTopology, "", "driver %s: %s; %d nodes are left out, such as %q: %w", x.driver, what, len(x.conflicts), name, x.conflicts[name])
}
