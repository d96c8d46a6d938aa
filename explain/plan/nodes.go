package plan

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/explain"
	"github.com/topodisk/topodisk/explain/fit"
	"github.com/topodisk/topodisk/internal/podclaims"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/topology"
)

// set is a set of the nodes that are left, by their index.
type set []bool

func (s set) empty() bool { return !slices.Contains(s, true) }

// others yields the nodes that are not in the set.
func (s set) others() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, in := range s {
			if !in && !yield(i) {
				return
			}
		}
	}
}

// intersect returns the nodes that are in all sets, of which there is at least one.
func intersect(sets ...set) set {
	all := slices.Clone(sets[0])
	for _, s := range sets[1:] {
		for i := range all {
			all[i] = all[i] && s[i]
		}
	}
	return all
}

// nodes are those that are left for Pods, and what is free on them. What is found for one selector is kept for the next that is equal.
type nodes struct {
	*Facts
	left  []*corev1.Node
	zones []string              // of each node that is left
	free  []corev1.ResourceList // on each node that is left
	cache map[string]set

	claims  map[string]*corev1.PersistentVolumeClaim // by namespace/name
	volumes map[string]*corev1.PersistentVolume
}

// newNodes returns the nodes but those that are gone.
func newNodes(f *Facts, gone func(*corev1.Node) bool) *nodes {
	n := &nodes{Facts: f, cache: map[string]set{}}
	n.claims, n.volumes = map[string]*corev1.PersistentVolumeClaim{}, map[string]*corev1.PersistentVolume{}
	placed := map[string][]*corev1.Pod{}
	for i := range f.Pods {
		p := &f.Pods[i]
		placed[p.Spec.NodeName] = append(placed[p.Spec.NodeName], p)
	}
	for i := range f.Nodes {
		if node := &f.Nodes[i]; !gone(node) {
			n.left = append(n.left, node)
			n.zones = append(n.zones, topology.ZoneOfLabels(node.Labels))
			n.free = append(n.free, fit.Free(node, placed[node.Name]))
		}
	}
	for i := range f.Claims {
		n.claims[f.Claims[i].Namespace+"/"+f.Claims[i].Name] = &f.Claims[i]
	}
	for i := range f.Volumes {
		n.volumes[f.Volumes[i].Name] = &f.Volumes[i]
	}
	return n
}

// matching returns the nodes that pass a test, which only depends on what the key is made of.
func (n *nodes) matching(kind string, of any, test func(*corev1.Node) bool) set {
	text, err := json.Marshal(of)
	key := kind + string(text)
	if found, ok := n.cache[key]; ok && err == nil {
		return found
	}
	found := make(set, len(n.left))
	for i, node := range n.left {
		found[i] = test(node)
	}
	n.cache[key] = found
	return found
}

// constraint is one reason for which a Pod can't be on every node.
type constraint struct {
	text string // with %s for the nodes that it excludes, if it says so
	fits set
}

// constraintsOf returns what keeps a Pod from nodes, those first that are best to name. A Pod's volumes come last to be dropped.
func (n *nodes) constraintsOf(p *corev1.Pod) []constraint {
	selected, affine := fit.NodeSelector(p), fit.NodeAffinity(p)
	var rules *corev1.NodeAffinity
	if p.Spec.Affinity != nil {
		rules = p.Spec.Affinity.NodeAffinity
	}
	return append(n.volumeConstraints(p),
		constraint{"its node selector or node affinity excludes %s", n.matching("affinity", []any{p.Spec.NodeSelector, rules},
			func(node *corev1.Node) bool { return selected(node) && affine(node) })},
		constraint{"taints that it doesn't tolerate exclude %s", n.matching("taints", p.Spec.Tolerations, func(node *corev1.Node) bool {
			_, keeps := fit.UntoleratedTaint(node, p.Spec.Tolerations)
			return !keeps
		})},
		constraint{"being marked as unschedulable excludes %s", n.matching("cordons", p.Spec.Tolerations,
			func(node *corev1.Node) bool { return !fit.Cordoned(node, p.Spec.Tolerations) })})
}

// room returns the nodes of the set that have room for the Pod as they are.
func (n *nodes) room(p *corev1.Pod, among set) set {
	wants := fit.Requests(p)
	found := make(set, len(n.left))
	for i := range n.left {
		found[i] = among[i] && len(fit.Lacking(n.free[i], wants)) == 0
	}
	return found
}

// volumeConstraints returns what a Pod's claims allow: the nodes that their volumes, or their classes, are for.
func (n *nodes) volumeConstraints(p *corev1.Pod) []constraint {
	var all []constraint
	for _, claim := range n.claimsOf(p) {
		if v := n.volumes[claim.Spec.VolumeName]; v != nil && len(affinityTerms(v)) > 0 {
			text := fmt.Sprintf("PersistentVolume %s of claim %s is tied to %s", v.Name, claim.Name, explain.PlaceOf(v))
			all = append(all, constraint{text, n.fitVolume(v)})
		} else if class := n.class(request.ClassName(claim)); v == nil && class != nil && len(class.AllowedTopologies) > 0 {
			text := fmt.Sprintf("StorageClass %s of claim %s allows no other zone", class.Name, claim.Name)
			all = append(all, constraint{text, n.fitTopologies(class.AllowedTopologies)})
		}
	}
	return all
}

// claimsOf returns the claims of a Pod that exist.
func (n *nodes) claimsOf(p *corev1.Pod) []*corev1.PersistentVolumeClaim {
	var claims []*corev1.PersistentVolumeClaim
	for _, name := range podclaims.Names(p) {
		if claim := n.claims[p.Namespace+"/"+name]; claim != nil {
			claims = append(claims, claim)
		}
	}
	return claims
}

// fitVolume returns the nodes that a volume can be used on.
func (n *nodes) fitVolume(v *corev1.PersistentVolume) set {
	return n.matching("volume", v.Spec.NodeAffinity, fit.VolumeAffinity(v))
}

// fitTopologies returns the nodes that a class's allowedTopologies allow.
func (n *nodes) fitTopologies(terms []corev1.TopologySelectorTerm) set {
	return n.matching("topologies", terms, fit.AllowedTopologies(terms))
}

// stuck returns an inclusion-minimal set of the reasons that leave a Pod none of the nodes; none if one is left for it.
func (n *nodes) stuck(p *corev1.Pod) []string {
	all := n.constraintsOf(p)
	if len(n.left) == 0 {
		return []string{"no other node is left"}
	}
	sets := make([]set, len(all))
	for i := range all {
		sets[i] = all[i].fits
	}
	among := intersect(sets...)
	if !among.empty() {
		if !n.room(p, among).empty() {
			return nil
		}
		whole := make(set, len(n.left))
		for i := range whole {
			whole[i] = true
		}
		all = append(all, constraint{"there is no room for it on %s", n.room(p, whole)})
	}
	var texts []string
	for _, c := range fit.Minimal(all, len(n.left), func(c constraint) iter.Seq[int] { return c.fits.others() }) {
		texts = append(texts, strings.Replace(c.text, "%s", excluded(c.fits), 1))
	}
	return texts
}

// excluded says in words how many nodes are not in the set.
func excluded(fits set) string {
	out := 0
	for range fits.others() {
		out++
	}
	if out == len(fits) {
		return "all other nodes"
	}
	return fmt.Sprintf("%d of %d other nodes", out, len(fits))
}
