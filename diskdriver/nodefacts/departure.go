package nodefacts

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// departureTaints say that a node is about to go: set by the cluster autoscaler
// and by Karpenter.
var departureTaints = []string{"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption"}

// awaitEvery is how often a departing node looks whether its volumes have gone.
const awaitEvery = 2 * time.Second

// AwaitDeparture returns when the Node lists none of the driver's volumes as attached any more, if the node is being drained or removed;
// at once if it isn't, or if there is no such Node. kube-controller-manager removes a volume from that list when the kubelet has
// unmounted it, before it is detached. The node plugin has to live that long: without it nobody unmounts, and Kubernetes waits for
// six minutes before it takes the disks away. The error says how many are left when the context ends.
func (s *Self) AwaitDeparture(ctx context.Context) error {
	if node, err := s.readNode(ctx); err != nil || !isDeparting(node) {
		return err
	}
	tick := time.NewTicker(awaitEvery)
	defer tick.Stop()
	for left := -1; ; {
		node, err := s.readNode(ctx)
		switch n := s.countAttached(node); {
		case err != nil:
			klog.ErrorS(err, "Volumes that are attached to the node were not read")
		case n == 0:
			return nil
		case n != left:
			left = n
			klog.InfoS("The node is drained and waits for its volumes to go", "node", s.name, "left", left)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d volumes are attached to node %s still: %w", max(left, 0), s.name, ctx.Err())
		case <-tick.C:
		}
	}
}

// readNode returns the Node; an empty one if it is gone.
func (s *Self) readNode(ctx context.Context) (*corev1.Node, error) {
	node, err := s.client.CoreV1().Nodes().Get(ctx, s.name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return &corev1.Node{}, fmt.Errorf("read Node %s: %w", s.name, err)
	}
	return node, nil
}

// isDeparting says whether a node is being drained or removed.
func isDeparting(node *corev1.Node) bool {
	return node.DeletionTimestamp != nil || node.Spec.Unschedulable ||
		slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return slices.Contains(departureTaints, t.Key) })
}

// countAttached counts the driver's volumes that are attached to a node by kube-controller-manager's account, which is
// read with the Node: a list of VolumeAttachments would have those of all nodes.
func (s *Self) countAttached(node *corev1.Node) (n int) {
	for _, v := range node.Status.VolumesAttached {
		if strings.HasPrefix(string(v.Name), "kubernetes.io/csi/"+s.driver+"^") {
			n++
		}
	}
	return n
}
