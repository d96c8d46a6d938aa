package explain

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/internal/shell"
	"github.com/topodisk/topodisk/topology"
)

func judgeNode(c *cluster, node *corev1.Node) Verdict {
	of := refOf(kindNode, node)
	if dead, evidence := isDead(c, node.Name); dead {
		return judgeDeadNode(c, node, evidence)
	}
	if !c.isRead(kindCSINode, "") {
		return unknown(c, fmt.Sprintf("Whether driver %s is registered on Node %s could not be read.", c.Driver, node.Name),
			Ref{Kind: kindCSINode})
	}
	switch problem := topologyProblem(c, node); {
	case problem == topology.NodeMislabelled:
		return zoneLabelsVerdict(node)
	case slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == StartupTaint }):
		return Verdict{
			State: Waits, Cause: DriverNotReadyOnNode, Actor: ClusterAdmin,
			Message: fmt.Sprintf("The node plugin of driver %s is not ready on Node %s, so it still has its startup taint.",
				c.Driver, node.Name),
			Evidence: append([]Evidence{seen(of, "spec.taints", node.Spec.Taints)}, driversOn(c, node.Name)...),
			Next:     []shell.Command{podsOn(node.Name)}, Retried: "the node plugin removes the taint when it has registered",
		}
	case driverOn(c.csiNodes[node.Name], c.Driver) == nil:
		return driverMissingVerdict(c, node.Name)
	case problem == topology.NodeUnready:
		return labelMissingVerdict(c, node)
	}
	return works("Driver %s is registered on Node %s.", c.Driver, node.Name)
}

// podsOn is the command that lists the Pods of a node, the node plugin's among them.
func podsOn(node string) shell.Command {
	return kubectl("get", "pods", "--all-namespaces", "--field-selector", "spec.nodeName="+node)
}

func driverMissingVerdict(c *cluster, node string, evidence ...Evidence) Verdict {
	return Verdict{
		State: Waits, Cause: DriverNotOnNode, Actor: ClusterAdmin,
		Message:  fmt.Sprintf("Driver %s is not registered on Node %s.", c.Driver, node),
		Evidence: append(driversOn(c, node), evidence...),
		Next:     []shell.Command{podsOn(node)}, Retried: "scheduler or kubelet, when the driver registers",
	}
}

// labelMissingVerdict is the verdict on a node that lacks a label which the driver reports.
func labelMissingVerdict(c *cluster, node *corev1.Node) Verdict {
	v := driverMissingVerdict(c, node.Name)
	for _, label := range driverOn(c.csiNodes[node.Name], c.Driver).TopologyKeys {
		if node.Labels[label] == "" {
			v.Message = fmt.Sprintf("Driver %s reports label %s of Node %s, and the Node doesn't have it, so no volume is made for it.",
				c.Driver, label, node.Name)
			v.Evidence = append(v.Evidence, labelOf(refOf(kindNode, node), node, label))
			v.Next = []shell.Command{command("describe", refOf(kindNode, node))}
		}
	}
	v.Retried = "scheduler and disk-provisioner, when the labels change"
	return v
}

// topologyProblem returns why disk-provisioner makes no volume for a node by its labels, and 0 if it does.
func topologyProblem(c *cluster, node *corev1.Node) topology.Reason {
	index := topology.NewIndex(c.Driver)
	index.SetNode(node)
	if csiNode := c.csiNodes[node.Name]; csiNode != nil {
		index.SetCSINode(csiNode)
	}
	_, err := index.Require(topology.Question{SelectedNode: node.Name, Strict: true})
	reason, _ := topology.ReasonOf(err)
	return reason
}

// zoneLabelsVerdict is the verdict on a node whose zone labels disagree. Which of them is wrong only ECS can tell.
func zoneLabelsVerdict(node *corev1.Node) Verdict {
	of := refOf(kindNode, node)
	verdict := Verdict{
		State: Waits, Cause: ZoneLabelsDisagree, Actor: ClusterAdmin,
		Message: fmt.Sprintf("The zone labels of Node %s name different zones, %s and %s, so no volume is made for it.",
			node.Name, node.Labels[topology.WellKnownZoneKey], node.Labels[topology.ZoneKey]),
		Evidence: []Evidence{labelOf(of, node, topology.WellKnownZoneKey), labelOf(of, node, topology.ZoneKey)},
		Retried:  "scheduler and disk-provisioner, when the labels change",
	}
	right := factsOnNode(node).Zone
	for _, wrong := range []string{topology.WellKnownZoneKey, topology.ZoneKey} {
		if right != "" && node.Labels[wrong] != right {
			verdict.Next = append(verdict.Next, command("label", of, "--overwrite", wrong+"="+right))
		}
	}
	if right == "" {
		verdict.Message += " Correct the one that isn't the zone of the node's instance, which no annotation of the Node tells."
		verdict.Next = []shell.Command{describe(of)}
	}
	return verdict
}

func labelOf(of Ref, object metav1.Object, label string) Evidence {
	return seen(of, "metadata.labels["+label+"]", object.GetLabels()[label])
}

// isDead says whether a node is gone or doesn't answer, and what says so. A node that could not be read is not dead.
func isDead(c *cluster, name string) (bool, []Evidence) {
	node, of := c.nodes[name], Ref{Kind: kindNode, Name: name}
	if node == nil {
		return c.isRead(kindNode, ""), []Evidence{seen(of, "metadata.name", "")}
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
			return true, []Evidence{
				seen(of, "status.conditions[Ready].status", string(condition.Status)),
				seen(of, "spec.taints", node.Spec.Taints),
			}
		}
	}
	return false, nil
}

// howDead says in words that a node is gone, or for how long it hasn't been ready.
func howDead(c *cluster, name string) string {
	node := c.nodes[name]
	if node == nil {
		return "is gone"
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return "has not been ready" + c.since(condition.LastTransitionTime)
		}
	}
	return "has not been ready"
}

// isOutOfService says whether an administrator has said that the node is off.
func isOutOfService(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

// mayBeOff adds to a verdict what to do about a node that doesn't answer: to look whether it is off, and only then to say so by a taint,
// for that takes its volumes from it.
func mayBeOff(v *Verdict, node string) {
	v.Actor = ClusterAdmin
	v.Message += " The taint " + corev1.TaintNodeOutOfService +
		" is only for a node whose instance is certainly stopped: until then it may still write to its disks."
	v.Next = []shell.Command{
		describe(Ref{Kind: kindNode, Name: node}), kubectl("taint", "node", node, corev1.TaintNodeOutOfService+"=nodeshutdown:NoExecute"),
	}
}

const detachesAfter = "kube-controller-manager detaches 6 minutes after the Pod's deletion"

func judgeDeadNode(c *cluster, node *corev1.Node, evidence []Evidence) Verdict {
	var volumes []string
	for _, a := range c.attachmentsOfNode[node.Name] {
		if a.Spec.Attacher == c.Driver && a.Spec.Source.PersistentVolumeName != nil {
			volumes = append(volumes, *a.Spec.Source.PersistentVolumeName)
		}
	}
	slices.Sort(volumes)
	if len(volumes) == 0 {
		return Verdict{
			State: Waits, Cause: NodeNotReady, Actor: ClusterAdmin,
			Message:  fmt.Sprintf("Node %s %s.", node.Name, howDead(c, node.Name)),
			Evidence: evidence,
			Next:     []shell.Command{describe(refOf(kindNode, node))},
			Retried:  "the kubelet, when it reaches the API server",
		}
	}
	message := fmt.Sprintf("Node %s %s, and keeps %s: no other node gets them before that ends.",
		node.Name, howDead(c, node.Name), strings.Join(volumes, ", "))
	return deadNodeVerdict(c, node.Name, message, append(attachmentsOn(c, node.Name), evidence...))
}

// deadNodeVerdict is the verdict on a volume that a dead node has. Of a node that is gone or out of service the volumes are detached
// without further ado.
func deadNodeVerdict(c *cluster, name, message string, evidence []Evidence) Verdict {
	v := Verdict{
		State: Waits, Cause: VolumeOnDeadNode, Actor: Nobody, Message: message, Evidence: evidence,
		Next: []shell.Command{kubectl("get", "volumeattachments")}, Retried: detachesAfter,
	}
	switch node := c.nodes[name]; {
	case node == nil:
	case isOutOfService(node):
		v.Retried = "kube-controller-manager, as soon as the Pods there are deleted"
	default:
		mayBeOff(&v, name)
	}
	return v
}

// driverOn returns the driver's entry of a CSINode, nil if it has none.
func driverOn(n *storagev1.CSINode, driver string) *storagev1.CSINodeDriver {
	if n == nil {
		return nil
	}
	for i := range n.Spec.Drivers {
		if n.Spec.Drivers[i].Name == driver {
			return &n.Spec.Drivers[i]
		}
	}
	return nil
}

// driversOn is the evidence of which drivers a node has, none if that could not be read.
func driversOn(c *cluster, node string) []Evidence {
	if !c.isRead(kindCSINode, "") {
		return nil
	}
	var drivers []storagev1.CSINodeDriver
	if n := c.csiNodes[node]; n != nil {
		drivers = n.Spec.Drivers
	}
	return []Evidence{seen(Ref{Kind: kindCSINode, Name: node}, "spec.drivers", drivers)}
}
