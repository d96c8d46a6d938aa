package explain

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/topodisk/topodisk/explain/fit"
)

// excludeByPod excludes by the Pod's own wishes and by taints.
func excludeByPod(x *feasibility) {
	pod, of := x.pod, refOf(kindPod, x.pod)
	selected, affine := fit.NodeSelector(pod), fit.NodeAffinity(pod)
	for i, node := range x.all {
		if !selected(node) {
			x.exclude("selector", i, func() *reason {
				return &reason{cause: PodUnschedulable,
					message: "the Pod's nodeSelector is " + labels.FormatLabels(pod.Spec.NodeSelector),
					evidence: func(*corev1.Node) []Evidence {
						return []Evidence{seen(of, "spec.nodeSelector", pod.Spec.NodeSelector)}
					}}
			})
		}
		if !affine(node) {
			x.exclude("affinity", i, func() *reason {
				return &reason{cause: PodUnschedulable, message: "the Pod's node affinity doesn't allow them",
					evidence: func(*corev1.Node) []Evidence {
						return []Evidence{seen(of, "spec.affinity.nodeAffinity", pod.Spec.Affinity.NodeAffinity)}
					}}
			})
		}
		excludeByTaint(x, i, node)
	}
}

// StartupTaint is the key of the taint that the node plugin takes off its node when it is ready.
const StartupTaint = "topodisk.io/agent-not-ready"

func excludeByTaint(x *feasibility, i int, node *corev1.Node) {
	taint, found := fit.UntoleratedTaint(node, x.pod.Spec.Tolerations)
	switch {
	case !found && !fit.Cordoned(node, x.pod.Spec.Tolerations):
		return
	case !found:
		x.exclude("cordon", i, func() *reason {
			return &reason{cause: PodUnschedulable, message: "they are marked as unschedulable",
				evidence: func(n *corev1.Node) []Evidence {
					return []Evidence{seen(refOf(kindNode, n), "spec.unschedulable", true)}
				}}
		})
		return
	}
	x.exclude("taint "+taint.ToString(), i, func() *reason {
		r := &reason{cause: PodUnschedulable,
			message: "they have the taint " + taint.ToString() + ", which the Pod doesn't tolerate",
			evidence: func(n *corev1.Node) []Evidence {
				return []Evidence{seen(refOf(kindNode, n), "spec.taints", n.Spec.Taints)}
			}}
		if taint.Key == StartupTaint {
			r.cause, r.message = DriverNotReadyOnNode, "their node plugin of the driver is not ready: they have the taint "+taint.ToString()
		}
		return r
	})
}

// excludeByRoom excludes the nodes that lack what the Pod requests. Of nodes whose Pods weren't read it is what is missing even if
// there are none.
func excludeByRoom(c *cluster, x *feasibility) {
	wants := fit.Requests(x.pod)
	for i, node := range x.all {
		for _, name := range fit.Lacking(fit.Free(node, c.podsOfNode[node.Name]), wants) {
			if _, told := node.Status.Allocatable[name]; !told && name == corev1.ResourcePods {
				continue // the node has yet to say how many Pods it takes
			}
			x.exclude("room "+string(name), i, func() *reason {
				return &reason{cause: PodUnschedulable, message: lacks(name, wants[name]), evidence: allocatable}
			})
		}
	}
}

// lacks says in words that nodes have too little of a resource for a Pod.
func lacks(name corev1.ResourceName, want resource.Quantity) string {
	if name == corev1.ResourcePods {
		return "they have as many Pods as they take"
	}
	return fmt.Sprintf("they have too little %s left: the Pod requests %s", name, want.String())
}

func allocatable(n *corev1.Node) []Evidence {
	return []Evidence{seen(refOf(kindNode, n), "status.allocatable", n.Status.Allocatable)}
}
