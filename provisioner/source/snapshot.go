package source

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/topodisk/topodisk/provisioner/watch"
)

// volumeSnapshot is what is read of a VolumeSnapshot (snapshot.storage.k8s.io/v1).
type volumeSnapshot struct {
	metav1.ObjectMeta `json:"metadata"`
	Status            struct {
		Content     *string            `json:"boundVolumeSnapshotContentName"`
		Ready       *bool              `json:"readyToUse"`
		RestoreSize *resource.Quantity `json:"restoreSize"`
		Error       *struct {
			Message *string `json:"message"`
		} `json:"error"`
	} `json:"status"`
}

// volumeSnapshotContent is what is read of a VolumeSnapshotContent.
type volumeSnapshotContent struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Driver     string                   `json:"driver"`
		Snapshot   v1.ObjectReference       `json:"volumeSnapshotRef"`
		SourceMode *v1.PersistentVolumeMode `json:"sourceVolumeMode"`
	} `json:"spec"`
	Status struct {
		Handle *string `json:"snapshotHandle"`
	} `json:"status"`
}

// read reads an object of a kind that is no part of Kubernetes itself.
func (r *Reader) read(ctx context.Context, o watch.Object, into any) error {
	live, err := r.dynamic.Resource(o.Resource).Namespace(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
	if err != nil {
		return watch.ReadError(o, err)
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, into)
}
