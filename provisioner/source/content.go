// Package source reads and protects the data sources of volumes: snapshots and claims. A
// Reader returns the content source of a claim's volume, if the source is ready, this
// driver's and allowed to the claim. A Protection keeps a source from being
// deleted, by a finalizer, while a volume is made of it.
package source

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
)

// allowModeChange on a VolumeSnapshotContent lets its volume mode be changed by
// a restore (Kubernetes: "Convert volume mode of a Snapshot").
const allowModeChange = "snapshot.storage.kubernetes.io/allow-volume-mode-change"

// Of returns the snapshot or claim that the claim's volume is to be filled from,
// and false if there is none.
func Of(claim *v1.PersistentVolumeClaim) (watch.Object, bool) {
	source := request.DataSource(claim)
	if source == nil || request.HasPopulator(claim) {
		return watch.Object{}, false
	}
	o := watch.Object{Resource: watch.PersistentVolumeClaims, Namespace: ptr.Deref(source.Namespace, ""), Name: source.Name}
	if source.Kind == "VolumeSnapshot" {
		o.Resource = watch.VolumeSnapshots
	}
	if o.Namespace == "" {
		o.Namespace = claim.Namespace
	}
	return o, true
}

// Options are what the driver and the operator allow of sources.
type Options struct {
	DriverName            string
	Snapshots             bool // the driver's CREATE_DELETE_SNAPSHOT
	Clones                bool // the driver's CLONE_VOLUME
	CrossNamespace        bool // claims may name sources of other namespaces, with a ReferenceGrant
	PreventModeConversion bool // a restore keeps its snapshot's volume mode unless the snapshot allows another

	RetryStart time.Duration // first wait after a failure to remove a finalizer; doubles with each one
	RetryMax   time.Duration // longest wait between two attempts
	Sweep      time.Duration // how often all snapshots are checked for unneeded finalizers; 0 never
}

// Reader reads sources from the API server.
type Reader struct {
	options Options
	client  kubernetes.Interface
	dynamic dynamic.Interface // of snapshots and ReferenceGrants
}

// NewReader returns a Reader.
func NewReader(options Options, client kubernetes.Interface, dynamic dynamic.Interface) *Reader {
	return &Reader{options: options, client: client, dynamic: dynamic}
}

// Content returns the content source of the claim's volume, nil for an empty volume. An error
// is a watch.NotReadyError if a change of one object may help.
func (r *Reader) Content(ctx context.Context, claim *v1.PersistentVolumeClaim) (*csi.VolumeContentSource, error) {
	source, ok := Of(claim)
	if !ok {
		return nil, nil
	}
	if source.Namespace != claim.Namespace {
		if err := r.checkGrant(ctx, claim, source); err != nil {
			return nil, err
		}
	}
	if source.Resource == watch.VolumeSnapshots {
		return r.restore(ctx, claim, source)
	}
	return r.clone(ctx, claim, source)
}

// restore checks that a VolumeSnapshot is ready, this driver's and fits the claim.
func (r *Reader) restore(ctx context.Context, claim *v1.PersistentVolumeClaim, source watch.Object) (*csi.VolumeContentSource, error) {
	if !r.options.Snapshots {
		return nil, fmt.Errorf("claim.spec.dataSource is VolumeSnapshot %s: driver %s does not support snapshots; remove it", source.Name, r.options.DriverName)
	}
	var snapshot volumeSnapshot
	if err := r.read(ctx, source, &snapshot); err != nil {
		return nil, err
	}
	if err := checkReady(source, &snapshot); err != nil {
		return nil, watch.NotReady(source, snapshot.ResourceVersion, err)
	}
	bound := watch.Object{Resource: watch.VolumeSnapshotContents, Name: *snapshot.Status.Content}
	var content volumeSnapshotContent
	if err := r.read(ctx, bound, &content); err != nil {
		return nil, err
	}
	if err := r.checkContent(&snapshot, &content); err != nil {
		return nil, err
	}
	if ptr.Deref(content.Status.Handle, "") == "" {
		return nil, watch.NotReady(bound, content.ResourceVersion, fmt.Errorf("%s has no snapshotHandle yet", bound))
	}
	if least := snapshot.Status.RestoreSize; least != nil && requested(claim).Cmp(*least) < 0 {
		return nil, fmt.Errorf("claim.spec.resources.requests.storage is %s, less than the %s of snapshot %s; ask for as much at least",
			requested(claim), least, source.Name)
	}
	if err := r.checkMode(claim, &content); err != nil {
		return nil, err
	}
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
		Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: *content.Status.Handle},
	}}, nil
}

// checkReady returns an error that says why no volume can be made of the snapshot yet.
func checkReady(source watch.Object, snapshot *volumeSnapshot) error {
	switch status := snapshot.Status; {
	case snapshot.DeletionTimestamp != nil:
		return fmt.Errorf("%s is being deleted", source)
	case ptr.Deref(status.Content, "") == "":
		return fmt.Errorf("%s is not bound to a VolumeSnapshotContent yet", source)
	case ptr.Deref(status.Ready, false):
		return nil
	case status.Error != nil && status.Error.Message != nil:
		return fmt.Errorf("%s is not ready to use: %s", source, *status.Error.Message)
	}
	return fmt.Errorf("%s is not ready to use yet", source)
}

// checkContent returns an error unless the content is the snapshot's and this driver's.
func (r *Reader) checkContent(snapshot *volumeSnapshot, content *volumeSnapshotContent) error {
	ref := content.Spec.Snapshot
	switch {
	case ref.UID != snapshot.UID || ref.Namespace != snapshot.Namespace || ref.Name != snapshot.Name:
		return fmt.Errorf("VolumeSnapshotContent %s is of snapshot %s/%s, not of %s/%s", content.Name, ref.Namespace, ref.Name, snapshot.Namespace, snapshot.Name)
	case content.Spec.Driver != r.options.DriverName:
		return fmt.Errorf("snapshot %s/%s is of driver %s; %s can't make a volume of it", snapshot.Namespace, snapshot.Name, content.Spec.Driver, r.options.DriverName)
	}
	return nil
}

// checkMode returns an error for a claim that reads a file system as a block device,
// or the other way, without permission: that may harm the node's kernel.
func (r *Reader) checkMode(claim *v1.PersistentVolumeClaim, content *volumeSnapshotContent) error {
	was := content.Spec.SourceMode
	if !r.options.PreventModeConversion || was == nil || *was == modeOf(claim.Spec.VolumeMode) {
		return nil
	}
	if allowed, err := strconv.ParseBool(content.Annotations[allowModeChange]); err == nil && allowed {
		return nil
	}
	return fmt.Errorf("claim.spec.volumeMode is %s, the snapshot's volume was %s; to allow it, annotate VolumeSnapshotContent %s with %s=true",
		modeOf(claim.Spec.VolumeMode), *was, content.Name, allowModeChange)
}

// clone checks that a claim is bound to a volume of this driver that fits.
func (r *Reader) clone(ctx context.Context, claim *v1.PersistentVolumeClaim, source watch.Object) (*csi.VolumeContentSource, error) {
	if !r.options.Clones {
		return nil, fmt.Errorf("claim.spec.dataSource is claim %s: driver %s does not support clones; remove it", source.Name, r.options.DriverName)
	}
	from, err := r.client.CoreV1().PersistentVolumeClaims(source.Namespace).Get(ctx, source.Name, metav1.GetOptions{})
	if err != nil {
		return nil, watch.ReadError(source, err)
	}
	switch {
	case from.DeletionTimestamp != nil:
		return nil, watch.NotReady(source, from.ResourceVersion, fmt.Errorf("%s is being deleted", source))
	case from.Status.Phase != v1.ClaimBound || from.Spec.VolumeName == "":
		return nil, watch.NotReady(source, from.ResourceVersion, fmt.Errorf("%s is not bound yet", source))
	case modeOf(from.Spec.VolumeMode) != modeOf(claim.Spec.VolumeMode):
		return nil, fmt.Errorf("claim.spec.volumeMode is %s, that of %s is %s; a copy has the same",
			modeOf(claim.Spec.VolumeMode), source, modeOf(from.Spec.VolumeMode))
	}
	pv, err := r.client.CoreV1().PersistentVolumes().Get(ctx, from.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	size := pv.Spec.Capacity[v1.ResourceStorage]
	switch {
	case pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != from.UID:
		return nil, fmt.Errorf("PersistentVolume %s is not bound to %s", pv.Name, source)
	case pv.Spec.CSI == nil || pv.Spec.CSI.Driver != r.options.DriverName:
		return nil, fmt.Errorf("the volume of %s is not of driver %s, which can't copy it", source, r.options.DriverName)
	case requested(claim).Cmp(size) < 0:
		return nil, fmt.Errorf("claim.spec.resources.requests.storage is %s, less than the %s of %s; ask for as much at least", requested(claim), &size, source)
	}
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
		Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: pv.Spec.CSI.VolumeHandle},
	}}, nil
}

func requested(claim *v1.PersistentVolumeClaim) *resource.Quantity {
	request := claim.Spec.Resources.Requests[v1.ResourceStorage]
	return &request
}

func modeOf(mode *v1.PersistentVolumeMode) v1.PersistentVolumeMode {
	return ptr.Deref(mode, v1.PersistentVolumeFilesystem)
}
