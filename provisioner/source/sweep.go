package source

import (
	"context"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/watch"
)

// sweep queues snapshots of this driver that have the finalizer of a process that
// ended before it could remove it. Claims are in a cache, which shows theirs.
func (p *Protection) sweep(ctx context.Context) {
	if err := p.enqueueSnapshots(ctx); err != nil && ctx.Err() == nil {
		klog.ErrorS(err, "Looking for snapshots with an unneeded finalizer failed")
	}
}

// enqueueSnapshots queues all but those of which an error says that they can't be read.
func (p *Protection) enqueueSnapshots(ctx context.Context) error {
	var errs []error
	pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return p.objects.Resource(watch.VolumeSnapshots).List(ctx, o)
	})
	err := pages.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
		snapshot := object.(*metav1.PartialObjectMetadata)
		if !slices.Contains(snapshot.Finalizers, snapshotFinalizer) {
			return nil
		}
		o := watch.Object{Resource: watch.VolumeSnapshots, Namespace: snapshot.Namespace, Name: snapshot.Name}
		releasable, err := p.reader.isReleasable(ctx, o)
		if errs = append(errs, err); releasable {
			p.queue.Add(o)
		}
		return nil
	})
	if apierrors.IsNotFound(err) {
		err = nil // a cluster need not have snapshots
	}
	return errors.Join(append(errs, err)...)
}

// isReleasable says whether this driver's provisioner may remove the finalizer from a snapshot that it does not use: the
// finalizer is the same for every driver's. The snapshot is its own, or nobody can restore it any more, because it is being
// deleted and its content, which names the driver, is gone.
func (r *Reader) isReleasable(ctx context.Context, o watch.Object) (bool, error) {
	var snapshot volumeSnapshot
	switch err := r.read(ctx, o, &snapshot); {
	case apierrors.IsNotFound(err):
		return false, nil // it is gone
	case err != nil:
		return false, err
	}
	bound := watch.Object{Resource: watch.VolumeSnapshotContents, Name: ptr.Deref(snapshot.Status.Content, "")}
	if bound.Name == "" {
		return snapshot.DeletionTimestamp != nil, nil
	}
	var content volumeSnapshotContent
	switch err := r.read(ctx, bound, &content); {
	case apierrors.IsNotFound(err):
		return snapshot.DeletionTimestamp != nil, nil
	case err != nil:
		return false, err
	}
	return content.Spec.Driver == r.options.DriverName, nil
}
