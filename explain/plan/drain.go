package plan

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/explain"
	"github.com/topodisk/topodisk/internal/podclaims"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/topology"
)

// Drain tells which volumes, claims and Pods would wait if all nodes of a zone went. The error says that the cluster has no such zone.
func Drain(f *Facts, zone string) (*Plan, error) {
	if err := f.checkZone(zone); err != nil {
		return nil, err
	}
	p := &Plan{Kind: KindDrain, Driver: f.Driver}
	p.needs(f, "Node", "PersistentVolume", "PersistentVolumeClaim", "Pod", "StorageClass")
	d := &drain{Facts: f, Plan: p, zone: zone}
	inZone := func(n *corev1.Node) bool { return topology.ZoneOfLabels(n.Labels) == zone }
	d.nodes, d.before = newNodes(f, inZone), newNodes(f, func(*corev1.Node) bool { return false })
	d.gone = map[string]bool{}
	for _, n := range d.before.left {
		if inZone(n) {
			d.gone[n.Name] = true
		}
	}
	pods := d.findPods()
	volumes := d.findVolumes()
	claims := d.findClaims()
	p.unchecked("nodes that an autoscaler would add", "only the nodes that there are count")
	p.unchecked("the room for all Pods together", "each Pod is tried alone on the nodes that are left, as they are now")
	p.unchecked("affinity between Pods and topology spread", "the scheduler alone can judge them")
	p.Summary = fmt.Sprintf("without the %s of %s: %s would wait or be lost, and %s and %s", counted(len(d.gone), "node"), zone,
		counted(pods, "Pod"), counted(volumes, "volume"), counted(claims, "unbound claim"))
	return p, nil
}

// drain is a Plan of its kind as it is made.
type drain struct {
	*Facts
	*Plan
	zone   string
	nodes  *nodes          // that would be left
	before *nodes          // that there are
	gone   map[string]bool // the zone's nodes
}

// findPods finds the Pods that would have no node, and returns how many there are.
func (d *drain) findPods() int {
	found := 0
	for i := range d.Pods {
		p := &d.Pods[i]
		waiting := p.Spec.NodeName == ""
		if podclaims.HasEnded(p) || !waiting && !d.gone[p.Spec.NodeName] || ofNode(p) {
			continue
		}
		owner := metav1.GetControllerOf(p)
		if owner == nil && !waiting {
			d.find(Deleted, podRef(p), "has no controller that makes it anew elsewhere")
			found++
			continue
		}
		if waiting && len(d.before.stuck(p)) > 0 {
			continue // with the zone, too
		}
		if reasons := d.nodes.stuck(p); len(reasons) > 0 {
			d.find(Waits, podRef(p), "%s%s", ownedBy(owner), strings.Join(reasons, "; "))
			found++
		}
	}
	return found
}

// ofNode says whether a Pod comes and goes with its node.
func ofNode(p *corev1.Pod) bool {
	owner := metav1.GetControllerOf(p)
	return owner != nil && (owner.Kind == "DaemonSet" || owner.Kind == "Node")
}

func ownedBy(owner *metav1.OwnerReference) string {
	if owner == nil {
		return ""
	}
	return fmt.Sprintf("of %s %s: ", owner.Kind, owner.Name)
}

// findVolumes finds the volumes that no other node could use, and returns how many there are.
func (d *drain) findVolumes() int {
	found := 0
	for i := range d.Volumes {
		v := &d.Volumes[i]
		if len(affinityTerms(v)) == 0 || !d.nodes.fitVolume(v).empty() || d.before.fitVolume(v).empty() {
			continue
		}
		found++
		if c := v.Spec.ClaimRef; c != nil {
			claim := explain.Ref{Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name}
			d.find(Waits, claim, "PersistentVolume %s is tied to %s", v.Name, explain.PlaceOf(v))
		} else {
			d.find(Note, volumeRef(v), "is tied to %s; no claim is bound to it", explain.PlaceOf(v))
		}
	}
	return found
}

// findClaims finds the unbound claims that could have a volume in no other zone, and returns how many there are.
func (d *drain) findClaims() int {
	found := 0
	for i := range d.Claims {
		c := &d.Claims[i]
		class := d.class(request.ClassName(c))
		if c.Spec.VolumeName != "" || class == nil || len(class.AllowedTopologies) == 0 {
			continue
		}
		if !d.nodes.fitTopologies(class.AllowedTopologies).empty() || d.before.fitTopologies(class.AllowedTopologies).empty() {
			continue
		}
		found++
		d.find(Waits, claimRef(c), "has no volume, and StorageClass %s allows no other zone", class.Name)
	}
	return found
}
