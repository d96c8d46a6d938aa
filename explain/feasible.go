package explain

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/explain/fit"
)

// reason takes nodes out of a Pod's feasible set.
type reason struct {
	cause    Cause
	message  string
	nodes    []int                              // the indexes of those it takes out, ascending
	count    int                                // how many they are by the scheduler's count, if that is all that is known
	evidence func(node *corev1.Node) []Evidence // for one of its nodes

	volume *corev1.PersistentVolume      // that is tied to a place, if that is the reason
	claim  *corev1.PersistentVolumeClaim // that lacks a disk, if that is the reason
}

// feasibility is which nodes can't have a Pod, and why.
type feasibility struct {
	pod     *corev1.Pod
	needs   []storage
	all     []*corev1.Node // by name
	reasons []*reason
	byKey   map[string]*reason
}

// RoomNodes returns the names of the nodes whose Pods are needed to judge the Facts' subject: a Pod's own node, or else those that
// everything but room leaves the Pod. Of a claim that has neither a volume nor a selected node they are those of the Pod that it waits
// for.
func RoomNodes(f *Facts) []string {
	c := newCluster(f)
	pod := c.pods[key(f.Subject.Namespace, f.Subject.Name)]
	if f.Subject.Kind != kindPod {
		pod = nil
	}
	if claim := c.claims[key(f.Subject.Namespace, f.Subject.Name)]; f.Subject.Kind == kindClaim && claim != nil {
		if claim.Spec.VolumeName == "" && selectedNode(claim) == "" {
			pod = c.consumerOf(f.Subject)
		}
	}
	switch {
	case pod == nil:
		return nil
	case pod.Spec.NodeName != "":
		return []string{pod.Spec.NodeName}
	}
	x := newFeasibility(c, pod)
	excludeStatically(c, x)
	var names []string
	for _, i := range x.left() {
		names = append(names, x.all[i].Name)
	}
	return names
}

// feasible works out which nodes can't have the Pod, from all that was read.
func (c *cluster) feasible(pod *corev1.Pod) *feasibility {
	x := newFeasibility(c, pod)
	excludeStatically(c, x)
	excludeByRoom(c, x)
	excludeByLimit(c, x)
	return x
}

func newFeasibility(c *cluster, pod *corev1.Pod) *feasibility {
	x := &feasibility{pod: pod, needs: c.storageOf(pod), byKey: map[string]*reason{}}
	for i := range c.Nodes {
		x.all = append(x.all, &c.Nodes[i])
	}
	slices.SortFunc(x.all, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return x
}

// excludeStatically excludes by all that doesn't depend on the Pods of nodes.
func excludeStatically(c *cluster, x *feasibility) {
	excludeByPod(x)
	for _, need := range x.needs {
		excludeByVolume(c, x, need)
	}
	if slices.ContainsFunc(x.needs, func(s storage) bool { return s.isOurs(c.Driver) }) {
		excludeByDriver(c, x)
	}
}

// exclude adds one node to a reason, and makes the reason at first.
func (x *feasibility) exclude(id string, node int, made func() *reason) {
	r := x.byKey[id]
	if r == nil {
		r = made()
		x.byKey[id] = r
		x.reasons = append(x.reasons, r)
	}
	if n := len(r.nodes); n == 0 || r.nodes[n-1] != node {
		r.nodes = append(r.nodes, node)
	}
}

// excludeUnless excludes the nodes of which ok is false.
func (x *feasibility) excludeUnless(ok func(*corev1.Node) bool, id string, made func() *reason) {
	for i, node := range x.all {
		if !ok(node) {
			x.exclude(id, i, made)
		}
	}
}

// left returns the nodes that no reason takes out.
func (x *feasibility) left() []int {
	out := make([]bool, len(x.all))
	for _, r := range x.reasons {
		for _, i := range r.nodes {
			out[i] = true
		}
	}
	var left []int
	for i := range out {
		if !out[i] {
			left = append(left, i)
		}
	}
	return left
}

// dropped are causes in the order in which minimal does without them, of reasons that take out equally many nodes.
var dropped = []Cause{
	DriverNotOnNode, DriverNotReadyOnNode, DiskTypeNotTaken, ZoneSoldOut, AttachLimitReached, AllowedTopologiesTooSmall, PodUnschedulable,
	NoNodeInVolumeZone,
}

// minimal returns an inclusion-minimal subset of reasons that takes all n nodes out: without any one of them some node is left. It is nil
// if all reasons together leave some node. It prefers the reasons that take out most, and of equal ones the later.
func minimal(reasons []*reason, n int) []*reason {
	bestFirst := slices.Clone(reasons)
	slices.Reverse(bestFirst)
	slices.SortStableFunc(bestFirst, func(a, b *reason) int {
		return cmp.Or(cmp.Compare(len(b.nodes), len(a.nodes)),
			cmp.Compare(slices.Index(dropped, b.cause), slices.Index(dropped, a.cause)))
	})
	kept := fit.Minimal(bestFirst, n, func(r *reason) iter.Seq[int] { return slices.Values(r.nodes) })
	if kept == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(reasons), func(r *reason) bool { return !slices.Contains(kept, r) })
}

// alone returns, for each of a minimal set's reasons, the nodes that it alone takes out.
func alone(set []*reason, n int) map[*reason][]int {
	takenBy := make([]int, n)
	for _, r := range set {
		for _, i := range r.nodes {
			takenBy[i]++
		}
	}
	found := map[*reason][]int{}
	for _, r := range set {
		for _, i := range r.nodes {
			if takenBy[i] == 1 {
				found[r] = append(found[r], i)
			}
		}
	}
	return found
}
