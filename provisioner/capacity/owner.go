package capacity

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"
)

// ownerEvery is how long an API server that can't be reached, or can't answer now, is given until it is asked again.
const ownerEvery = time.Second

// Owner returns a reference to the object that is level owners above a Pod: 0
// for the Pod itself, 1 for its ReplicaSet, 2 for that one's Deployment. It
// waits for an API server that can't answer now until the context ends.
func Owner(ctx context.Context, objects metadata.Interface, namespace, pod string, level int) (*metav1.OwnerReference, error) {
	at := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: pod}
	read, err := readOwner(ctx, objects, namespace, at)
	if err != nil {
		return nil, err
	}
	at.UID = read.UID
	for up := range level {
		owner := metav1.GetControllerOfNoCopy(read)
		if owner == nil {
			return nil, fmt.Errorf("%s %s/%s has no owner; set --capacity-ownerref-level=%d or less", at.Kind, namespace, at.Name, up)
		}
		at = metav1.OwnerReference{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID}
		if up+1 < level {
			if read, err = readOwner(ctx, objects, namespace, at); err != nil {
				return nil, err
			}
		}
	}
	return &at, nil
}

func readOwner(ctx context.Context, objects metadata.Interface, namespace string, owner metav1.OwnerReference) (*metav1.PartialObjectMetadata, error) {
	version, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return nil, err
	}
	resource, _ := meta.UnsafeGuessKindToResource(version.WithKind(owner.Kind))
	var read *metav1.PartialObjectMetadata
	err = wait.PollUntilContextCancel(ctx, ownerEvery, true, func(ctx context.Context) (bool, error) {
		read, err = objects.Resource(resource).Namespace(namespace).Get(ctx, owner.Name, metav1.GetOptions{})
		if err != nil && ctx.Err() == nil && mayPass(err) {
			klog.ErrorS(err, "The owner of CSIStorageCapacity objects is not known yet", "kind", owner.Kind, "namespace", namespace, "name", owner.Name)
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return nil, fmt.Errorf("%s %s/%s: %w", owner.Kind, namespace, owner.Name, err)
	}
	return read, nil
}

// mayPass reports whether an error is no answer of the API server, or one that asks for patience.
func mayPass(err error) bool {
	status := apierrors.APIStatus(nil)
	return !errors.As(err, &status) || status.Status().Code >= http.StatusInternalServerError || apierrors.IsTooManyRequests(err)
}
