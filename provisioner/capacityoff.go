package provisioner

import (
	"context"
	"errors"
	"fmt"
	"math"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilwait "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// WithdrawCapacities has the scheduler look at no capacity of the driver any more:
// it sets storageCapacity of the CSIDriver back to false and deletes the
// CSIStorageCapacity objects that a disk-provisioner has written in the namespace,
// or in all with an empty one. It returns how many it has deleted. What is not
// there counts as done. An error names what is left; the rest is done all the same,
// and it may be called again.
func WithdrawCapacities(ctx context.Context, client kubernetes.Interface, driver, namespace string) (deleted int, err error) {
	list, err := client.StorageV1().CSIStorageCapacities(namespace).List(ctx, metav1.ListOptions{LabelSelector: ourObjects(driver)})
	if err != nil {
		list, err = &storagev1.CSIStorageCapacityList{}, fmt.Errorf("list CSIStorageCapacity objects: %w", err)
	}
	for i := range list.Items {
		err = errors.Join(err, raise(ctx, client, &list.Items[i]))
	}
	if failed := setStorageCapacity(ctx, client, driver, false); ignoreNotFound(failed) != nil {
		return 0, errors.Join(err, failed) // as long as the scheduler looks at them, the objects are needed
	}
	for _, object := range list.Items {
		failed := client.StorageV1().CSIStorageCapacities(object.Namespace).Delete(ctx, object.Name, metav1.DeleteOptions{})
		if failed = ignoreNotFound(failed); failed != nil {
			err = errors.Join(err, fmt.Errorf("delete CSIStorageCapacity %s/%s: %w", object.Namespace, object.Name, failed))
			continue
		}
		deleted++
	}
	return deleted, err
}

// raise makes an object say that everything is to be had: that is what wakes Pods
// which the scheduler has turned away for want of it, and neither the change of the
// CSIDriver nor the end of the object does.
func raise(ctx context.Context, client kubernetes.Interface, object *storagev1.CSIStorageCapacity) error {
	everything := resource.NewQuantity(math.MaxInt64, resource.BinarySI)
	if object.MaximumVolumeSize != nil && object.MaximumVolumeSize.Cmp(*everything) == 0 {
		return nil
	}
	update := object.DeepCopy()
	update.Capacity, update.MaximumVolumeSize = everything, everything
	_, err := client.StorageV1().CSIStorageCapacities(object.Namespace).Update(ctx, update, metav1.UpdateOptions{})
	if err = ignoreNotFound(err); err != nil {
		return fmt.Errorf("update CSIStorageCapacity %s/%s: %w", object.Namespace, object.Name, err)
	}
	return nil
}

// setStorageCapacity makes the scheduler look, or not look, at the driver's capacities.
func setStorageCapacity(ctx context.Context, client kubernetes.Interface, driver string, looks bool) error {
	drivers := client.StorageV1().CSIDrivers()
	now, err := drivers.Get(ctx, driver, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if ptr.Deref(now.Spec.StorageCapacity, false) == looks {
		return nil
	}
	if _, err := drivers.Patch(ctx, driver, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"storageCapacity":%t}}`, looks), metav1.PatchOptions{}); err != nil {
		return err
	}
	klog.InfoS("Whether the scheduler looks at capacities was changed", "driver", driver, "storageCapacity", looks)
	return nil
}

// withdrawCapacities undoes what a process with --enable-capacity has left, and
// tries until it has succeeded or ctx ends.
func (c *Controller) withdrawCapacities(ctx context.Context) {
	config := c.p.config
	retries := utilwait.Backoff{Duration: config.RetryStart, Factor: 2, Cap: config.RetryMax, Steps: math.MaxInt32}
	_ = retries.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) { // only ctx ends it early
		deleted, err := WithdrawCapacities(ctx, c.p.client, config.DriverName, config.Namespace)
		if deleted > 0 {
			klog.InfoS("CSIStorageCapacity objects were deleted, for --enable-capacity is off", "objects", deleted)
		}
		if err != nil {
			klog.ErrorS(err, "What --enable-capacity has left is still there, and is tried again", "driver", config.DriverName)
		}
		return err == nil, nil
	})
}
