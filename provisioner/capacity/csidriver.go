package capacity

import (
	"context"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// syncCSIDriver sets the CSIDriver's storageCapacity once every class has its general
// object: from then on the scheduler rejects classes without one. Every poll repeats it,
// because an upgrade may have reset the CSIDriver.
func (c *Controller) syncCSIDriver(ctx context.Context, _ string) error {
	if !c.isComplete() {
		return nil
	}
	if err := setStorageCapacity(ctx, c.client, c.config.DriverName, true); err != nil {
		return err
	}
	c.enabled = true
	return nil
}

// isComplete says whether every published class has a general object.
func (c *Controller) isComplete() bool {
	general := map[string]bool{}
	for _, object := range c.objects.List() {
		if object := object.(*storagev1.CSIStorageCapacity); scopeOf(object).zone == "" {
			general[object.StorageClassName] = true
		}
	}
	for _, object := range c.classes.List() {
		if class := object.(*storagev1.StorageClass); c.isPublished(class) && !general[class.Name] {
			return false
		}
	}
	return true
}

// setStorageCapacity sets whether the scheduler checks capacities.
func setStorageCapacity(ctx context.Context, client kubernetes.Interface, driver string, enabled bool) error {
	drivers := client.StorageV1().CSIDrivers()
	now, err := drivers.Get(ctx, driver, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if ptr.Deref(now.Spec.StorageCapacity, false) == enabled {
		return nil
	}
	patch := fmt.Appendf(nil, `{"spec":{"storageCapacity":%t}}`, enabled)
	if _, err := drivers.Patch(ctx, driver, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	klog.InfoS("The storageCapacity of the CSIDriver was changed", "driver", driver, "storageCapacity", enabled)
	return nil
}
