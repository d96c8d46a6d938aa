package lab

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

var (
	snapshotKind = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshots"}
	contentKind  = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshotcontents"}
)

// Snapshot is a VolumeSnapshot with its content that a test keeps, in the place of snapshot-controller and csi-snapshotter.
type Snapshot struct {
	Name string

	namespace, handle string
	objects           dynamic.Interface
}

// MakeSnapshot makes the objects of a snapshot that the driver has taken of a claim's disk. They don't tell of it before
// Taken and Ready.
func (l *Lab) MakeSnapshot(ctx context.Context, namespace, name, claim, disk, handle string) (*Snapshot, error) {
	objects, err := l.Dynamic()
	if err != nil {
		return nil, err
	}
	x := &Snapshot{Name: name, namespace: namespace, handle: handle, objects: objects}
	made, err := x.make(ctx, snapshotKind, namespace, "VolumeSnapshot", map[string]any{"source": map[string]any{"persistentVolumeClaimName": claim}})
	if err != nil {
		return nil, err
	}
	_, err = x.make(ctx, contentKind, "", "VolumeSnapshotContent", map[string]any{
		"deletionPolicy": "Delete", "driver": DriverName, "source": map[string]any{"volumeHandle": disk}, "sourceVolumeMode": "Filesystem",
		"volumeSnapshotRef": map[string]any{"namespace": namespace, "name": name, "uid": string(made.GetUID())},
	})
	if err != nil {
		return nil, err
	}
	return x, x.status(ctx, snapshotKind, namespace, fmt.Sprintf(`{"boundVolumeSnapshotContentName":%q,"readyToUse":false}`, name))
}

func (x *Snapshot) make(ctx context.Context, resource schema.GroupVersionResource,
	namespace, kind string, spec map[string]any) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	object.SetGroupVersionKind(resource.GroupVersion().WithKind(kind))
	object.SetName(x.Name)
	return x.objects.Resource(resource).Namespace(namespace).Create(ctx, object, metav1.CreateOptions{})
}

func (x *Snapshot) status(ctx context.Context, kind schema.GroupVersionResource, namespace, status string) error {
	return x.patch(ctx, kind, namespace, `{"status":`+status+`}`, "status")
}

func (x *Snapshot) patch(ctx context.Context, kind schema.GroupVersionResource, namespace, patch string, subresources ...string) error {
	_, err := x.objects.Resource(kind).Namespace(namespace).Patch(ctx, x.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	return err
}

// Source is what a claim names that is to be filled from the snapshot.
func (x *Snapshot) Source() *corev1.TypedLocalObjectReference {
	return &corev1.TypedLocalObjectReference{APIGroup: &snapshotKind.Group, Kind: "VolumeSnapshot", Name: x.Name}
}

// Taken says in the content which snapshot it is.
func (x *Snapshot) Taken(ctx context.Context) error {
	return x.status(ctx, contentKind, "", fmt.Sprintf(`{"snapshotHandle":%q,"readyToUse":true}`, x.handle))
}

// Ready says that a volume of 20 GiB can be made of the snapshot.
func (x *Snapshot) Ready(ctx context.Context) error {
	return x.status(ctx, snapshotKind, x.namespace, `{"readyToUse":true,"restoreSize":"20Gi"}`)
}

// Delete deletes the VolumeSnapshot alone.
func (x *Snapshot) Delete(ctx context.Context) error {
	return x.objects.Resource(snapshotKind).Namespace(x.namespace).Delete(ctx, x.Name, metav1.DeleteOptions{})
}

// Finalizers returns those of the VolumeSnapshot, and false if it is gone.
func (x *Snapshot) Finalizers(ctx context.Context) ([]string, bool, error) {
	object, err := x.objects.Resource(snapshotKind).Namespace(x.namespace).Get(ctx, x.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	return object.GetFinalizers(), true, nil
}

// Unprotect takes the finalizers off the VolumeSnapshot.
func (x *Snapshot) Unprotect(ctx context.Context) error {
	return x.patch(ctx, snapshotKind, x.namespace, `{"metadata":{"finalizers":null}}`)
}

// Remove deletes the objects that are left.
func (x *Snapshot) Remove(ctx context.Context) error {
	err := x.Delete(ctx)
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return errors.Join(err, x.objects.Resource(contentKind).Delete(ctx, x.Name, metav1.DeleteOptions{}))
}
