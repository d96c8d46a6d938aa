package collect

import (
	"cmp"
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/topodisk/topodisk/explain"
)

var snapshotGroup = schema.GroupVersion{Group: "snapshot.storage.k8s.io", Version: "v1"}

// readSource reads the VolumeSnapshot or the claim that a claim is filled from.
func (r *reader) readSource(ctx context.Context, claim *corev1.PersistentVolumeClaim) {
	kind, namespace, name := sourceOf(claim)
	switch kind {
	case Claim:
		r.readNamedClaim(ctx, namespace, name)
	case snapshot:
		r.readSnapshot(ctx, namespace, name)
	}
}

// sourceOf returns what a claim is filled from, "" if it is empty.
func sourceOf(claim *corev1.PersistentVolumeClaim) (kind, namespace, name string) {
	if ref := claim.Spec.DataSourceRef; ref != nil {
		if ref.Namespace != nil {
			namespace = *ref.Namespace
		}
		return ref.Kind, cmp.Or(namespace, claim.Namespace), ref.Name
	}
	if ref := claim.Spec.DataSource; ref != nil {
		return ref.Kind, claim.Namespace, ref.Name
	}
	return "", "", ""
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
	end, err := r.begin(ctx)
	if err != nil {
		return nil
	}
	defer end()
	found, err := in.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && !isMissingAPI(err):
		return nil
	case err != nil:
		r.noteError(kind, namespace, err)
		return nil
	}
	stripMeta(found)
	return found
}

func metaOf(u *unstructured.Unstructured) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(), Generation: u.GetGeneration(),
		CreationTimestamp: u.GetCreationTimestamp(), DeletionTimestamp: u.GetDeletionTimestamp(), Labels: u.GetLabels(), Annotations: u.GetAnnotations(),
		Finalizers: u.GetFinalizers(),
	}
}
