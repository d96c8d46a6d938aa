package nodefacts

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// departureTaints say that a node is about to go: set by the cluster autoscaler
// and by Karpenter.
var departureTaints = []string{"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption"}

// awaitEvery is how often a departing node looks whether its volumes have gone.
const awaitEvery = 2 * time.Second

// AwaitDeparture returns when none of the driver's volumes is attached to the
// node any more, if the node is being drained or removed; at once if it isn't.
// The node plugin has to live that long: without it nobody unmounts, and
// Kubernetes waits for six minutes before it takes the disks away. The error
// says how many are left when the context ends.
func (s *Self) AwaitDeparture(ctx context.Context) error {
	departing, err := s.isDeparting(ctx)
	if err != nil || !departing {
		return err
	}
	tick := time.NewTicker(awaitEvery)
	defer tick.Stop()
	for left := -1; ; {
		n, err := s.countAttached(ctx)
		switch {
		case err == nil && n == 0:
			return nil
		case err == nil && n != left:
			left = n
			klog.InfoS("The node is drained and waits for its volumes to go", "node", s.name, "left", left)
		case err != nil:
			klog.ErrorS(err, "Volumes that are attached to the node were not read")
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d volumes are attached to node %s still: %w", max(left, 0), s.name, ctx.Err())
		case <-tick.C:
		}
	}
}

// isDeparting says whether the node is being drained or removed.
func (s *Self) isDeparting(ctx context.Context) (bool, error) {
	node, err := s.client.CoreV1().Nodes().Get(ctx, s.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("read Node %s: %w", s.name, err)
	}
	return node.DeletionTimestamp != nil || node.Spec.Unschedulable ||
		slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return slices.Contains(departureTaints, t.Key) }), nil
}

// countAttached counts the driver's volumes that are attached to the node.
func (s *Self) countAttached(ctx context.Context) (int, error) {
	list, err := s.client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return 0, fmt.Errorf("list VolumeAttachments: %w", err)
	}
	n := 0
	for _, a := range list.Items {
		if isOn(&a, s.driver, s.name) {
			n++
		}
	}
	return n, nil
}

func isOn(a *storagev1.VolumeAttachment, driver, node string) bool {
	return a.Spec.Attacher == driver && a.Spec.NodeName == node
}
