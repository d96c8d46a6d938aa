// Package fit says on which nodes kube-scheduler may place a Pod, with one function for each of its rules, and which of the reasons against
// all nodes are worth naming. It does no I/O, and judges what the objects say; room is that of a node as it is.
package fit

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresource "k8s.io/component-helpers/resource"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/internal/podclaims"
)

// NodeSelector returns whether a node matches the Pod's nodeSelector.
func NodeSelector(pod *corev1.Pod) func(*corev1.Node) bool {
	return matcher(nodeaffinity.NewRequiredNodeAffinity(pod.Spec.NodeSelector, nil))
}

// NodeAffinity returns whether a node matches what the Pod's node affinity requires.
func NodeAffinity(pod *corev1.Pod) func(*corev1.Node) bool {
	return matcher(nodeaffinity.NewRequiredNodeAffinity(nil, pod.Spec.Affinity))
}

// matcher returns whether a node matches; terms with errors match none.
func matcher(of interface {
	Match(*corev1.Node) (bool, error)
}) func(*corev1.Node) bool {
	return func(node *corev1.Node) bool {
		matches, _ := of.Match(node)
		return matches
	}
}

// UntoleratedTaint returns the node's first taint that keeps off Pods with the tolerations, and whether there is one.
func UntoleratedTaint(node *corev1.Node, tolerations []corev1.Toleration) (corev1.Taint, bool) {
	return schedulinghelper.FindMatchingUntoleratedTaint(klog.Logger{}, node.Spec.Taints, tolerations, func(t *corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	}, false)
}

// Cordoned says whether the node is marked as unschedulable, with its taint or yet without it, and the tolerations don't allow that.
func Cordoned(node *corev1.Node, tolerations []corev1.Toleration) bool {
	cordon := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	return node.Spec.Unschedulable && !schedulinghelper.TolerationsTolerateTaint(klog.Logger{}, tolerations, &cordon, false)
}

// Requests returns what a Pod requests, one of the Pods that its node takes included. While a container is resized it has the larger of
// what it asks for and what it still has.
func Requests(pod *corev1.Pod) corev1.ResourceList {
	wants := podresource.PodRequests(pod, podresource.PodResourcesOptions{UseStatusResources: true})
	wants[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return wants
}

// Free returns what is allocatable on a node less what its Pods request; less than zero if they request more.
func Free(node *corev1.Node, pods []*corev1.Pod) corev1.ResourceList {
	free := node.Status.Allocatable.DeepCopy()
	for _, pod := range pods {
		if podclaims.HasEnded(pod) {
			continue
		}
		for name, want := range Requests(pod) {
			if rest, ok := free[name]; ok {
				rest.Sub(want)
				free[name] = rest
			}
		}
	}
	return free
}

// Lacking returns the resources of which less is free than is wanted, by name, and Pods last.
func Lacking(free, wants corev1.ResourceList) []corev1.ResourceName {
	var lacking []corev1.ResourceName
	for name, want := range wants {
		if rest := free[name]; !want.IsZero() && rest.Cmp(want) < 0 {
			lacking = append(lacking, name)
		}
	}
	slices.SortFunc(lacking, func(a, b corev1.ResourceName) int {
		return cmp.Or(afterAll(a)-afterAll(b), cmp.Compare(a, b))
	})
	return lacking
}

func afterAll(name corev1.ResourceName) int {
	if name == corev1.ResourcePods {
		return 1
	}
	return 0
}
