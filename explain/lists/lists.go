// Package lists reads all objects of a kind from an API server, page by page, with only list.
package lists

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// PageSize is how many objects are asked for at a time.
const PageSize = 500

// List is a list of objects as client-go returns it.
type List interface {
	runtime.Object
	GetContinue() string
}

// Each hands every object of the pages that the options select to take. Its error is the API server's.
func Each[L List, O any](ctx context.Context, page func(context.Context, metav1.ListOptions) (L, error), options metav1.ListOptions, take func(*O)) error {
	for options.Limit = PageSize; ; {
		objects, err := page(ctx, options)
		if err != nil {
			return err
		}
		err = meta.EachListItem(objects, func(o runtime.Object) error {
			object, ok := any(o).(*O)
			if !ok {
				return fmt.Errorf("the API server returned a %T", o)
			}
			take(object)
			return nil
		})
		if options.Continue = objects.GetContinue(); options.Continue == "" || err != nil {
			return err
		}
	}
}

// Keep returns a function that appends objects, without their managed fields, for Each.
func Keep[O any, P interface {
	*O
	metav1.Object
}](to *[]O) func(*O) {
	return func(o *O) {
		P(o).SetManagedFields(nil)
		*to = append(*to, *o)
	}
}

// SnapshotGroup and GroupSnapshotGroup are the API groups of volume snapshots and of group snapshots.
const (
	SnapshotGroup      = "snapshot.storage.k8s.io"
	GroupSnapshotGroup = "groupsnapshot.storage.k8s.io"
)

// versions are those of a group that a cluster may have, the newest first.
var versions = map[string][]string{SnapshotGroup: {"v1"}, GroupSnapshotGroup: {"v1", "v1beta2", "v1beta1"}}

// EachOfSnapshots hands every object of a resource of one of the two groups to take, in the newest version that the cluster has; a cluster
// without the resource has none.
func EachOfSnapshots(ctx context.Context, client dynamic.Interface, group, resource string, take func(*unstructured.Unstructured)) error {
	for _, version := range versions[group] {
		objects := client.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
		page := func(ctx context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
			return objects.List(ctx, o)
		}
		if err := Each(ctx, page, metav1.ListOptions{}, take); !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
