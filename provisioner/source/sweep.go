package source

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/provisioner/watch"
)

// sweepPage is how many snapshots are listed at a time.
const sweepPage = 500

// sweep queues snapshots of this driver that have the finalizer of a process that
// ended before it could remove it. Claims are in a cache, which shows theirs.
func (p *Protection) sweep(ctx context.Context) {
	if err := p.enqueueSnapshots(ctx); err != nil && ctx.Err() == nil {
		klog.ErrorS(err, "Listing snapshots that may have an unneeded finalizer failed")
	}
}

func (p *Protection) enqueueSnapshots(ctx context.Context) error {
	options := metav1.ListOptions{Limit: sweepPage}
	for {
		list, err := p.objects.Resource(watch.VolumeSnapshots).List(ctx, options)
		if apierrors.IsNotFound(err) {
			return nil // a cluster need not have snapshots
		}
		if err != nil {
			return err
		}
		for i := range list.Items {
			snapshot := &list.Items[i]
			o := watch.Object{Resource: watch.VolumeSnapshots, Namespace: snapshot.Namespace, Name: snapshot.Name}
			if slices.Contains(snapshot.Finalizers, snapshotFinalizer) && p.reader.isOurs(ctx, o) {
				p.queue.Add(o)
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return nil
		}
	}
}

// isOurs says whether a snapshot is known to be this driver's: the finalizer is the
// same for every driver's provisioner.
func (r *Reader) isOurs(ctx context.Context, o watch.Object) bool {
	var snapshot volumeSnapshot
	var content volumeSnapshotContent
	if err := r.read(ctx, o, &snapshot); err != nil || snapshot.Status.Content == nil {
		return false
	}
	err := r.read(ctx, watch.Object{Resource: watch.VolumeSnapshotContents, Name: *snapshot.Status.Content}, &content)
	return err == nil && content.Spec.Driver == r.options.DriverName
}
