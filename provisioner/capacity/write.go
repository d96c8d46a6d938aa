package capacity

import (
	"context"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	storagev1client "k8s.io/client-go/kubernetes/typed/storage/v1"
)

// write makes the objects of a class the desired ones.
//
// The scheduler takes a node if one of the objects that match it is large enough, and
// the selector of an object is immutable. So all that is desired is written before
// anything is deleted. In between two objects may match a zone, of which the larger one
// counts: at worst one more claim is refused and rescheduled. In the other order a zone
// would be without an object, and its Pods unschedulable, until the process goes on, or
// the next one leads.
//
// It lists the objects again: the cache may lag behind its own last writes, and would
// have it delete the one general object that is left.
func (c *Controller) write(ctx context.Context, class string, desired []*storagev1.CSIStorageCapacity) error {
	objects := c.client.StorageV1().CSIStorageCapacities(c.config.Namespace)
	list, err := objects.List(ctx, metav1.ListOptions{LabelSelector: selectorOf(c.config.DriverName)})
	if err != nil {
		return err
	}
	obsolete := map[string]*storagev1.CSIStorageCapacity{}
	for i := range list.Items {
		if object := &list.Items[i]; object.StorageClassName == class {
			obsolete[object.Name] = object
		}
	}
	for _, object := range desired {
		if err := createOrUpdate(ctx, objects, obsolete[object.Name], object); err != nil {
			return err
		}
		delete(obsolete, object.Name)
	}
	for name := range obsolete {
		if err := ignoreNotFound(objects.Delete(ctx, name, metav1.DeleteOptions{})); err != nil {
			return err
		}
	}
	return nil
}

// createOrUpdate writes an object unless it is as desired.
func createOrUpdate(ctx context.Context, objects storagev1client.CSIStorageCapacityInterface, old, desired *storagev1.CSIStorageCapacity) error {
	switch {
	case old == nil:
		_, err := objects.Create(ctx, desired, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return relabel(ctx, objects, desired, err)
		}
		return err
	case equalObject(old, desired):
		return nil
	}
	update := old.DeepCopy()
	update.Capacity, update.MaximumVolumeSize, update.OwnerReferences = desired.Capacity, desired.MaximumVolumeSize, desired.OwnerReferences
	_, err := objects.Update(ctx, update, metav1.UpdateOptions{})
	return err
}

// relabel writes an object that somebody has taken the labels from, by which all others are found. The name of an object says its scope,
// which is immutable.
func relabel(ctx context.Context, objects storagev1client.CSIStorageCapacityInterface, desired *storagev1.CSIStorageCapacity, exists error) error {
	list, err := objects.List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, desired.Name).String()})
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list.Items, func(object storagev1.CSIStorageCapacity) bool { return object.Name == desired.Name })
	if i < 0 {
		return exists
	}
	update := desired.DeepCopy()
	update.ResourceVersion = list.Items[i].ResourceVersion
	_, err = objects.Update(ctx, update, metav1.UpdateOptions{})
	return err
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
