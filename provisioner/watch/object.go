package watch

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
)

// The resources that a claim or a deletion may depend on besides those in the caches.
var (
	Secrets                 = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	PersistentVolumeClaims  = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}
	VolumeSnapshots         = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshots"}
	VolumeSnapshotContents  = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshotcontents"}
	ReferenceGrants         = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1beta1", Resource: "referencegrants"}
	VolumeAttributesClasses = schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "volumeattributesclasses"}
)

// kinds are the names of the resources in errors.
var kinds = map[schema.GroupVersionResource]string{
	Secrets: "secret", PersistentVolumeClaims: "claim", VolumeSnapshots: "VolumeSnapshot", VolumeSnapshotContents: "VolumeSnapshotContent",
	ReferenceGrants: "ReferenceGrant", VolumeAttributesClasses: "VolumeAttributesClass",
}

// Object identifies an object of the API; without a name, all objects of the resource in a namespace.
type Object struct {
	Resource        schema.GroupVersionResource
	Namespace, Name string
}

// String returns the object's kind and name for errors and logs.
func (o Object) String() string {
	if o.Namespace == "" {
		return kinds[o.Resource] + " " + o.Name
	}
	return kinds[o.Resource] + " " + o.Namespace + "/" + o.Name
}

// NotReadyError says that an object is absent, or not yet what it must be. A retry
// before the object changes fails, too; Objects.SubscribeError waits for the change.
type NotReadyError struct {
	Err             error
	Object          Object
	ResourceVersion string // of the object, or of the list of all, when it was read; empty if it was absent
}

// NotReady returns a NotReadyError.
func NotReady(o Object, resourceVersion string, err error) error {
	return &NotReadyError{Err: err, Object: o, ResourceVersion: resourceVersion}
}

// NotReadyObject returns the object of a NotReadyError in err's chain, if there is one.
func NotReadyObject(err error) Object {
	var notReady *NotReadyError
	if errors.As(err, &notReady) {
		return notReady.Object
	}
	return Object{}
}

// Error returns the text of Err.
func (e *NotReadyError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *NotReadyError) Unwrap() error { return e.Err }

// ReadError names the object in an error of reading it. If the object doesn't exist
// the result is a NotReadyError.
func ReadError(o Object, err error) error {
	err = fmt.Errorf("%s: %w", o, err)
	if apierrors.IsNotFound(err) {
		return NotReady(o, "", err)
	}
	return err
}

// ReadSecret returns the data of a Secret as it is now, so that none stays in memory;
// nothing for no reference, and a NotReadyError if the Secret does not exist or has no
// data: with no secrets the driver would use its own keys.
func ReadSecret(ctx context.Context, client kubernetes.Interface, ref *v1.SecretReference) (map[string]string, error) {
	if ref == nil {
		return nil, nil
	}
	secret, err := client.CoreV1().Secrets(ref.Namespace).Get(withoutBodies(ctx), ref.Name, metav1.GetOptions{})
	object := Object{Resource: Secrets, Namespace: ref.Namespace, Name: ref.Name}
	switch {
	case err != nil:
		return nil, ReadError(object, err)
	case len(secret.Data) == 0:
		return nil, NotReady(object, secret.ResourceVersion, fmt.Errorf("%s has no data", object))
	}
	data := make(map[string]string, len(secret.Data))
	for key, value := range secret.Data {
		data[key] = string(value)
	}
	return data, nil
}
