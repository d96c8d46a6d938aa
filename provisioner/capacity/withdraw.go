package capacity

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilwait "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// Withdraw makes the scheduler ignore the driver's capacities: it sets
// storageCapacity of the CSIDriver to false and deletes the CSIStorageCapacity objects
// that a Controller has written in the namespace, or in all with an empty one. It returns
// how many it has deleted. Removal of non-existent objects isn't an error. An error names
// what is left to do; Withdraw may be called again.
func Withdraw(ctx context.Context, client kubernetes.Interface, driver, namespace string) (deleted int, err error) {
	list, err := client.StorageV1().CSIStorageCapacities(namespace).List(ctx, metav1.ListOptions{LabelSelector: selectorOf(driver)})
	if err != nil {
		list, err = &storagev1.CSIStorageCapacityList{}, fmt.Errorf("list CSIStorageCapacity objects: %w", err)
	}
	for i := range list.Items {
		err = errors.Join(err, removeLimit(ctx, client, &list.Items[i]))
	}
	if failed := setStorageCapacity(ctx, client, driver, false); ignoreNotFound(failed) != nil {
		return 0, errors.Join(err, failed) // the scheduler needs the objects as long as it checks capacities
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

// removeLimit sets an object to the largest size. Only that makes the scheduler retry
// Pods that it rejected for lack of capacity: a change of the CSIDriver doesn't, and the
// deletion of the object neither.
func removeLimit(ctx context.Context, client kubernetes.Interface, object *storagev1.CSIStorageCapacity) error {
	unlimited := resource.NewQuantity(math.MaxInt64, resource.BinarySI)
	if object.MaximumVolumeSize != nil && object.MaximumVolumeSize.Cmp(*unlimited) == 0 {
		return nil
	}
	update := object.DeepCopy()
	update.Capacity, update.MaximumVolumeSize = unlimited, unlimited
	_, err := client.StorageV1().CSIStorageCapacities(object.Namespace).Update(ctx, update, metav1.UpdateOptions{})
	if err = ignoreNotFound(err); err != nil {
		return fmt.Errorf("update CSIStorageCapacity %s/%s: %w", object.Namespace, object.Name, err)
	}
	return nil
}

// WithdrawWithRetries calls Withdraw until it has succeeded or ctx ends. The back-off
// doubles from one duration to the other.
func WithdrawWithRetries(ctx context.Context, client kubernetes.Interface, driver, namespace string, from, to time.Duration) {
	backoff := utilwait.Backoff{Duration: from, Factor: 2, Cap: to, Steps: math.MaxInt32}
	_ = backoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) { // only ctx ends it early
		deleted, err := Withdraw(ctx, client, driver, namespace)
		if deleted > 0 {
			klog.InfoS("CSIStorageCapacity objects were deleted, for --enable-capacity is off", "objects", deleted)
		}
		if err != nil {
			klog.ErrorS(err, "Withdrawing the CSIStorageCapacity objects failed, will retry", "driver", driver)
		}
		return err == nil, nil
	})
}
