package claim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/topodisk/topodisk/internal/escape"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
	"github.com/topodisk/topodisk/topology"
)

// A claim may name a node where none of its Pods can run: a backup keeps the node that was selected when it was taken (velero#9053), and a
// Pod may come back for another zone. The scheduler selects no other node while the claim names one, so the Pod would wait forever.

// checkPods returns an error with topology.NodeNotAllowed if Pods wait for the claim and none of them can run on its selected node, as far as
// caches show that.
func (s *Syncer) checkPods(claim *v1.PersistentVolumeClaim) error {
	name := claim.Annotations[request.AnnSelectedNode]
	if !s.SupportsTopology || name == "" || !s.Pods.Knows() {
		return nil
	}
	node := watch.Get[*metav1.PartialObjectMetadata](s.Nodes, name)
	if node == nil {
		return nil // the topology says so
	}
	if err := excluded(&v1.Node{ObjectMeta: node.ObjectMeta}, s.waiting(claim)); err != nil {
		return &topology.Error{Reason: topology.NodeNotAllowed, Node: name, Err: err}
	}
	return nil
}

// checkPodsNow does what checkPods does for the claim as it is now.
func (s *Syncer) checkPodsNow(claim *v1.PersistentVolumeClaim) error {
	if now := s.cached(claim.UID); now != nil {
		return s.checkPods(now)
	}
	return nil
}

// waitingPod is a Pod that waits for a claim.
type waitingPod struct {
	*watch.Pod
	volumes []*v1.PersistentVolume // of its other claims
}

// waiting returns the Pods that wait for a claim, by name.
func (s *Syncer) waiting(claim *v1.PersistentVolumeClaim) []waitingPod {
	var waiting []waitingPod
	for _, pod := range s.Pods.OfClaim(claim.Namespace, claim.Name) {
		if pod.DeletionTimestamp != nil {
			continue
		}
		one := waitingPod{Pod: pod}
		for _, other := range pod.Claims {
			if pv := s.volumeOf(s.claimNamed(claim.Namespace, other)); pv != nil && other != claim.Name {
				one.volumes = append(one.volumes, pv)
			}
		}
		waiting = append(waiting, one)
	}
	slices.SortFunc(waiting, func(a, b waitingPod) int { return strings.Compare(a.Name, b.Name) }) // equal events name the same one
	return waiting
}

// excluded returns why the first of the Pods can't run on a node if none of them can. It doesn't if there is none.
func excluded(node *v1.Node, pods []waitingPod) (why error) {
	for _, pod := range pods {
		switch err := pod.excludes(node); {
		case err == nil:
			return nil
		case why == nil:
			why = fmt.Errorf("no Pod that waits for the claim can run there; Pod %s: %w", pod.Name, err)
		}
	}
	return why
}

// excludes returns what keeps the Pod off a node for good: its nodeSelector, its required node affinity, or another volume of its.
func (p waitingPod) excludes(node *v1.Node) error {
	for _, key := range slices.Sorted(maps.Keys(p.NodeSelector)) {
		if value, ok := node.Labels[key]; !ok || value != p.NodeSelector[key] {
			return fmt.Errorf("its nodeSelector is %s, the node's label is %s", escape.Quoted(key+"="+p.NodeSelector[key]), escape.Quoted(value))
		}
	}
	if isOutside(node, p.Required) {
		return fmt.Errorf("its required node affinity is %s", affinityText(p.Required))
	}
	for _, pv := range p.volumes {
		if of := pv.Spec.NodeAffinity; of != nil && isOutside(node, of.Required) {
			return fmt.Errorf("its volume %s has the node affinity %s", pv.Name, affinityText(of.Required))
		}
	}
	return nil
}

// isOutside says whether a node matches none of a selector's terms. One that can't be read doesn't tell.
func isOutside(node *v1.Node, selector *v1.NodeSelector) bool {
	if selector == nil {
		return false
	}
	matches, err := nodeaffinity.NewLazyErrorNodeSelector(selector).Match(node)
	return !matches && err == nil
}

// affinityText returns the beginning of a selector's terms in words.
func affinityText(selector *v1.NodeSelector) string {
	var terms []string
	for _, term := range selector.NodeSelectorTerms {
		var all []string
		for _, e := range slices.Concat(term.MatchExpressions, term.MatchFields) {
			all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Key, e.Operator, strings.Join(e.Values, ","))))
		}
		terms = append(terms, strings.Join(all, " and "))
	}
	return escape.Quoted(strings.Join(terms, " or "))
}
