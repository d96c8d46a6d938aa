// Package topology decides in which zones a volume may live, in which of them
// it should be tried first, and what its PersistentVolume then says.
//
// It is the part of dynamic provisioning that the CSI specification calls
// TopologyRequirement (CreateVolumeRequest.accessibility_requirements), for a
// claim with a selected node as well as for one that is bound immediately. An
// Index is fed with Node and CSINode events and answers Questions; it does no
// I/O and remembers no question, so the same cluster and the same question give
// the same bytes, on every retry and after every restart.
//
// The two labels in which a node may carry its zone (ZoneKey and
// WellKnownZoneKey) mean one thing. Terms that name the same zone are one term,
// whichever of the keys they use, and labels that contradict each other are
// refused instead of guessed at. A label with an empty value counts as missing.
package topology

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

const (
	// ZoneKey is the label that the disk driver's own node plugin has always reported.
	ZoneKey = "topology.diskplugin.csi.alibabacloud.com/zone"
	// WellKnownZoneKey is Kubernetes' label for a node's zone.
	WellKnownZoneKey = corev1.LabelTopologyZone
	// RegionKey is Kubernetes' label for a node's region.
	RegionKey = corev1.LabelTopologyRegion
)

// Question is what has to be known of a claim and its class to decide where
// its volume may live.
type Question struct {
	// ClaimName is the claim's name without its namespace. It spreads claims
	// without a selected node over the zones.
	ClaimName string
	// SelectedNode is the node that the scheduler chose for the claim's first
	// Pod, or empty for a claim that is bound immediately.
	SelectedNode string
	// Allowed is the class's allowedTopologies.
	Allowed []corev1.TopologySelectorTerm
	// Strict asks for the selected node's topology and no other. It says
	// nothing about a claim without a selected node.
	Strict bool
	// Immediate asks for every topology of the cluster when there is neither a
	// selected node nor a list of allowed topologies. Without it such a claim
	// has no constraint.
	Immediate bool
	// ExtraLabelPrefix picks labels of the selected node that are no topology
	// keys of the driver but are sent along in the node's term. Empty picks none.
	ExtraLabelPrefix string
}

// Reason says why a Question has no answer, in terms of what may give it one.
type Reason int

const (
	// NodeGone says that the selected Node does not exist. Whoever acts on it should
	// look at the API server once, for an informer may lag behind.
	NodeGone Reason = iota + 1
	// NodeUnready says that the selected Node exists, but its CSINode, the driver in it
	// or a label that the driver reports is missing. A plugin that is
	// just registering cures that; one that never comes does not.
	NodeUnready
	// NodeNotAllowed says that the selected Node is outside of the class's allowedTopologies.
	NodeNotAllowed
	// NodeMislabelled says that the zone labels of the selected Node contradict each other. Another node may do.
	NodeMislabelled
	// NoTopology says that no node answers the question yet. A Node or CSINode event may.
	NoTopology
	// Invalid says that the class's allowedTopologies contradict themselves. Somebody has to change them.
	Invalid
)

var reasonNames = [...]string{"unknown", "node gone", "node unready", "node not allowed", "node mislabelled", "no topology", "invalid"}

// String returns the Reason in words.
func (r Reason) String() string {
	if r < 0 || int(r) >= len(reasonNames) {
		return fmt.Sprintf("reason %d", int(r))
	}
	return reasonNames[r]
}

// Error is the answer to a Question that has no other.
type Error struct {
	Reason Reason
	Node   string // the node at fault, if there is one
	Err    error  // what is wrong, in words for the claim's owner
}

// Error returns the node at fault and what is wrong.
func (e *Error) Error() string {
	text := e.Reason.String()
	if e.Err != nil {
		text = e.Err.Error()
	}
	if e.Node == "" {
		return text
	}
	return fmt.Sprintf("node %q: %s", e.Node, text)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ReasonOf returns the Reason of the outermost Error in err's chain, and false
// if there is none.
func ReasonOf(err error) (Reason, bool) {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason, true
	}
	return 0, false
}

func refuse(reason Reason, node, format string, args ...any) error {
	return &Error{Reason: reason, Node: node, Err: fmt.Errorf(format, args...)}
}
