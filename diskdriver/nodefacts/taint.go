package nodefacts

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// StartupTaint is the key of a taint that keeps Pods off a new node until the
// driver is registered there. Who makes the node sets it.
const StartupTaint = "topodisk.io/agent-not-ready"

// Untaint takes the startup taint away whenever the node's CSINode shows the
// driver with a limit of volumes, until the context ends. Before, a Pod might
// come to a node that seems to take any number of disks.
func (s *Self) Untaint(ctx context.Context) {
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[string](),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "taint"})
	stop := context.AfterFunc(ctx, queue.ShutDown)
	defer stop()
	look := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { queue.Add(s.name) },
		UpdateFunc: func(any, any) { queue.Add(s.name) },
	}
	mine := informers.NewSharedInformerFactoryWithOptions(s.client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, s.name).String()
	}))
	nodes, csiNodes := mine.Core().V1().Nodes().Informer(), mine.Storage().V1().CSINodes().Informer()
	for _, informer := range []cache.SharedIndexInformer{nodes, csiNodes} {
		if _, err := informer.AddEventHandler(look); err != nil {
			klog.ErrorS(err, "The startup taint is left") // the informer has been stopped
			return
		}
	}
	mine.Start(ctx.Done())
	defer mine.Shutdown()
	mine.WaitForCacheSync(ctx.Done())
	for {
		name, ended := queue.Get()
		if ended {
			return
		}
		if err := s.untaint(ctx, nodes.GetStore(), csiNodes.GetStore()); err != nil {
			klog.ErrorS(err, "The startup taint was not taken away", "node", s.name)
			queue.AddRateLimited(name)
		} else {
			queue.Forget(name)
		}
		queue.Done(name)
	}
}

// untaint takes the taint away if it is there and the driver is, too.
func (s *Self) untaint(ctx context.Context, nodes, csiNodes cache.Store) error {
	node, isNode := stored[*corev1.Node](nodes, s.name)
	csiNode, isCSINode := stored[*storagev1.CSINode](csiNodes, s.name)
	if !isNode || !isCSINode || !s.isRegistered(csiNode) {
		return nil
	}
	patch := withoutTaint(node)
	if patch == nil {
		return nil
	}
	_, err := s.client.CoreV1().Nodes().Patch(ctx, s.name, types.JSONPatchType, patch, metav1.PatchOptions{})
	switch {
	case err == nil:
		klog.InfoS("The startup taint is taken away", "node", s.name, "taint", StartupTaint)
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsInvalid(err):
		return fmt.Errorf("the Node has other taints by now: %w", err)
	}
	return err
}

// stored returns the object of a name, and false if it isn't there.
func stored[T any](store cache.Store, name string) (T, bool) {
	object, exists, err := store.GetByKey(name)
	kept, ok := object.(T)
	return kept, err == nil && exists && ok
}

// isRegistered says whether a CSINode shows the driver and how many volumes it
// takes.
func (s *Self) isRegistered(csiNode *storagev1.CSINode) bool {
	return slices.ContainsFunc(csiNode.Spec.Drivers, func(d storagev1.CSINodeDriver) bool {
		return d.Name == s.driver && d.Allocatable != nil && d.Allocatable.Count != nil
	})
}

// withoutTaint returns the patch that takes the startup taint away, unless the
// taints have changed meanwhile; nil if there is no such taint.
func withoutTaint(node *corev1.Node) []byte {
	left := slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t corev1.Taint) bool { return t.Key == StartupTaint })
	if len(left) == len(node.Spec.Taints) {
		return nil
	}
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/spec/taints", "value": node.Spec.Taints},
		{"op": "replace", "path": "/spec/taints", "value": left},
	})
	if err != nil {
		panic(fmt.Sprintf("a patch of taints: %v", err))
	}
	return patch
}
