package collect

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/topodisk/topodisk/explain"
	"github.com/topodisk/topodisk/internal/podclaims"
)

// readRoom reads the Pods on the nodes whose room decides, and the PersistentVolumes of their claims.
func (r *reader) readRoom(ctx context.Context) {
	nodes := r.roomNodes()
	if len(nodes) > explain.MaxRoomNodes {
		r.note(Pod, "", fmt.Sprintf("the Pods on %d nodes that may take the Pod were not read, for they are more than %d", len(nodes), explain.MaxRoomNodes))
		return
	}
	if len(nodes) == 0 {
		return
	}
	var pods objects[corev1.Pod]
	var volumes objects[corev1.PersistentVolume]
	together(
		func() { r.listPodsOn(ctx, nodes, &pods) },
		func() {
			r.listVolumes(ctx, func(pv *corev1.PersistentVolume) bool { return pv.Spec.ClaimRef != nil }, &volumes)
		},
	)
	used := map[string]bool{}
	for _, pod := range pods.all() {
		r.pods.put(pod.Namespace, pod.Name, pod, false)
		for _, claim := range podclaims.Names(pod) {
			used[pod.Namespace+"/"+claim] = true
		}
	}
	for _, volume := range volumes.all() {
		if ref := volume.Spec.ClaimRef; used[ref.Namespace+"/"+ref.Name] {
			r.volumes.put("", volume.Name, volume, false)
		}
	}
}

// roomNodes returns the names of the nodes whose room decides.
func (r *reader) roomNodes() []string {
	if r.subject.Kind == Node {
		return []string{r.subject.Name}
	}
	return explain.RoomNodes(r.facts())
}

// listPodsOn lists the Pods on nodes.
func (r *reader) listPodsOn(ctx context.Context, nodes []string, to *objects[corev1.Pod]) {
	all := func(namespace string) lister[*corev1.PodList] { return r.Kube.CoreV1().Pods(namespace).List }
	var each []func()
	for _, node := range nodes {
		options := fromCache
		options.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
		isOn := func(pod *corev1.Pod) bool { return pod.Spec.NodeName == node }
		each = append(each, func() { listEverywhere(ctx, r, Pod, r.subject.Namespace, options, all, isOn, to) })
	}
	together(each...)
}
