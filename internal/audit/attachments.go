package audit

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/internal/podclaims"
)

// nodes says which node an instance is, and which volumes the cluster wants on it.
type nodes struct {
	byInstance map[string][]string // names of Nodes; of one that was made anew there may be two
	known      map[string]bool     // names of Nodes whose instance is known
	attach     map[string][]string // names of Nodes, by the PersistentVolume that a VolumeAttachment attaches
	has        map[string]bool     // node and volume handle: as the Node's status has them
	claims     map[string]bool     // node and claim: of Pods that have not ended
}

func newNodes(c Cluster) *nodes {
	n := &nodes{byInstance: map[string][]string{}, known: map[string]bool{}, attach: map[string][]string{}, has: map[string]bool{}, claims: map[string]bool{}}
	n.addInstances(c)
	for i := range c.Attachments {
		if name := c.Attachments[i].Spec.Source.PersistentVolumeName; name != nil {
			n.attach[*name] = append(n.attach[*name], c.Attachments[i].Spec.NodeName)
		}
	}
	for i := range c.Nodes {
		n.addVolumes(&c.Nodes[i])
	}
	for i := range c.Pods {
		for _, claim := range podclaims.InUse(&c.Pods[i]) {
			n.claims[key(c.Pods[i].Spec.NodeName, c.Pods[i].Namespace, claim)] = true
		}
	}
	return n
}

// key joins names, none of which has a slash.
func key(names ...string) string { return strings.Join(names, "/") }

// addInstances notes which instance a node is: as the driver has registered it, and as the cloud's provider ID says (region.instance).
func (n *nodes) addInstances(c Cluster) {
	add := func(instance, node string) {
		if instance != "" && !slices.Contains(n.byInstance[instance], node) {
			n.byInstance[instance], n.known[node] = append(n.byInstance[instance], node), true
		}
	}
	for i := range c.CSINodes {
		for _, d := range c.CSINodes[i].Spec.Drivers {
			if d.Name == c.Driver {
				add(d.NodeID, c.CSINodes[i].Name)
			}
		}
	}
	for i := range c.Nodes {
		id := c.Nodes[i].Spec.ProviderID
		add(id[strings.LastIndexAny(id, "./")+1:], c.Nodes[i].Name)
	}
}

// addVolumes notes the volumes that the kubelet uses, or that the attach-detach controller has attached.
func (n *nodes) addVolumes(node *corev1.Node) {
	add := func(name corev1.UniqueVolumeName) { // kubernetes.io/csi/<driver>^<handle>
		n.has[key(node.Name, string(name[strings.LastIndexByte(string(name), '^')+1:]))] = true
	}
	for _, name := range node.Status.VolumesInUse {
		add(name)
	}
	for _, v := range node.Status.VolumesAttached {
		add(v.Name)
	}
}

// wants says whether the cluster wants a disk with a PersistentVolume on an instance. A VolumeAttachment to a node of which no instance
// is known may want any.
func (n *nodes) wants(handle string, pv *corev1.PersistentVolume, instance string) bool {
	names := n.byInstance[instance]
	if slices.ContainsFunc(n.attach[pv.Name], func(node string) bool { return slices.Contains(names, node) || !n.known[node] }) {
		return true
	}
	return slices.ContainsFunc(names, func(node string) bool {
		claim := pv.Spec.ClaimRef
		return n.has[key(node, handle)] || claim != nil && n.claims[key(node, claim.Namespace, claim.Name)]
	})
}

// judgeAttachments names the attachments of the PersistentVolumes' disks that neither a VolumeAttachment nor a Node nor a Pod wants.
// A disk without a PersistentVolume is a finding itself, which says where it is attached.
func (e *comparison) judgeAttachments() {
	for _, d := range e.listing.Disks {
		volumes := e.handles[d.ID]
		if !e.isOfVolume(d) {
			continue
		}
		for _, instance := range d.Instances {
			if slices.ContainsFunc(volumes, func(pv *corev1.PersistentVolume) bool { return e.nodes.wants(d.ID, pv, instance) }) {
				continue
			}
			f := diskFinding(d)
			f.Kind, f.Instances, f.About, f.since = UnwantedAttachment, []string{instance}, e.aboutAttachment(volumes[0], instance), instance+" "+d.Detached
			e.add(f)
		}
	}
}

func (e *comparison) aboutAttachment(pv *corev1.PersistentVolume, instance string) string {
	names := e.nodes.byInstance[instance]
	if len(names) == 0 {
		return fmt.Sprintf("PersistentVolume %s is attached to %s, which is no node of this cluster", pv.Name, instance)
	}
	return fmt.Sprintf("PersistentVolume %s is attached to %s (node %s) without a VolumeAttachment or a Pod", pv.Name, instance, strings.Join(names, ", "))
}
