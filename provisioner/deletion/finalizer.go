package deletion

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/provisioner/request"
)

// release removes the finalizer of a PersistentVolume that is being deleted. Nothing
// is left to do for it then, though the cache still shows it for a moment.
func (c *Controller) release(ctx context.Context, pv *v1.PersistentVolume) error {
	if err := c.removeFinalizer(ctx, pv); err != nil {
		return err
	}
	c.finished.Add(pv.UID, nil)
	return nil
}

// addFinalizer keeps the PersistentVolume until its volume is deleted, unless it is
// being deleted by now, or another one has its name: the API server calls both invalid.
// A conflict says neither.
func (c *Controller) addFinalizer(ctx context.Context, pv *v1.PersistentVolume) error {
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"finalizers":[%q]}}`, pv.UID, request.Finalizer)
	_, err := c.Client.CoreV1().PersistentVolumes().Patch(ctx, pv.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsInvalid(err):
		klog.V(2).InfoS("A PersistentVolume can't be given the finalizer any more", "persistentVolume", pv.Name, "reason", err)
		return nil
	case err != nil:
		return fmt.Errorf("the finalizer that keeps it until its volume is deleted can't be added: %w", err)
	}
	return nil
}

// removeFinalizer removes our finalizer and none that others add or remove meanwhile.
func (c *Controller) removeFinalizer(ctx context.Context, pv *v1.PersistentVolume) error {
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"$deleteFromPrimitiveList/finalizers":[%q]}}`, pv.UID, request.Finalizer)
	_, err := c.Client.CoreV1().PersistentVolumes().Patch(ctx, pv.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("the finalizer can't be removed: %w", err)
	}
	return nil
}
