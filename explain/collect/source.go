package collect

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/topodisk/topodisk/explain"
)

var snapshotGroup = schema.GroupVersion{Group: "snapshot.storage.k8s.io", Version: "v1"}

// readSource reads the VolumeSnapshot or the claim that a claim is filled from.
func (r *reader) readSource(ctx context.Context, claim *corev1.PersistentVolumeClaim) {
	switch _, _, source := explain.SourceOf(claim); source.Kind {
	case Claim:
		r.readNamedClaim(ctx, source.Namespace, source.Name)
	case snapshot:
		r.readSnapshot(ctx, source.Namespace, source.Name)
	}
}

// readSnapshot reads a VolumeSnapshot and its content.
func (r *reader) readSnapshot(ctx context.Context, namespace, name string) {
	found := r.readDynamic(ctx, snapshot, namespace, name, r.Dynamic.Resource(snapshotGroup.WithResource("volumesnapshots")).Namespace(namespace))
	if found == nil {
		return
	}
	r.involve(snapshot, found)
	s := explain.Snapshot{ObjectMeta: metaOf(found)}
	s.Class, _, _ = unstructured.NestedString(found.Object, "spec", "volumeSnapshotClassName")
	s.Content, _, _ = unstructured.NestedString(found.Object, "status", "boundVolumeSnapshotContentName")
	s.Ready, _, _ = unstructured.NestedBool(found.Object, "status", "readyToUse")
	s.RestoreSize, _, _ = unstructured.NestedString(found.Object, "status", "restoreSize")
	s.Error, _, _ = unstructured.NestedString(found.Object, "status", "error", "message")
	if s.Content != "" {
		content := r.readDynamic(ctx, snapshotContent, "", s.Content, r.Dynamic.Resource(snapshotGroup.WithResource("volumesnapshotcontents")))
		if content != nil {
			s.Driver, _, _ = unstructured.NestedString(content.Object, "spec", "driver")
			message, _, _ := unstructured.NestedString(content.Object, "status", "error", "message")
			s.Error = cmp.Or(s.Error, message)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.snapshots = append(r.snapshots, s)
}

// readDynamic reads an object that may be absent: it returns nil then, and if it can't be read, which is noted.
func (r *reader) readDynamic(ctx context.Context, kind, namespace, name string, in dynamic.ResourceInterface) *unstructured.Unstructured {
	var found objects[unstructured.Unstructured]
	return readNamed(ctx, r, kind, namespace, name, &found, func(ctx context.Context, name string, o metav1.GetOptions) (*unstructured.Unstructured, error) {
		return in.Get(ctx, name, o)
	})
}

func metaOf(u *unstructured.Unstructured) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(), Generation: u.GetGeneration(),
		CreationTimestamp: u.GetCreationTimestamp(), DeletionTimestamp: u.GetDeletionTimestamp(), Labels: u.GetLabels(), Annotations: u.GetAnnotations(),
		Finalizers: u.GetFinalizers(),
	}
}
