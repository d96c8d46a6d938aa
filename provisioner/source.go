package provisioner

import (
	"context"
	"fmt"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
)

// allowModeChange on a VolumeSnapshotContent lets its volume mode be changed by
// a restore (Kubernetes: "Convert volume mode of a Snapshot").
const allowModeChange = "snapshot.storage.kubernetes.io/allow-volume-mode-change"

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

// sourceObject returns the object that the claim's volume is to be filled from,
// and false if there is none, or one of a foreign kind.
func sourceObject(claim *v1.PersistentVolumeClaim) (watch.Object, bool) {
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

// content returns what the driver is to fill the claim's volume with; nil for
// an empty volume. An error comes with Finished if only another claim would
// help, with Unchanged if the source may become what it must be.
func (p *Provisioner) content(ctx context.Context, claim *v1.PersistentVolumeClaim) (*csi.VolumeContentSource, Outcome, error) {
	source, ok := sourceObject(claim)
	if !ok {
		return nil, Unchanged, nil
	}
	if source.Namespace != claim.Namespace {
		if err := p.mayCross(ctx, claim, source); err != nil {
			return nil, Finished, err
		}
	}
	if source.Resource == watch.VolumeSnapshots {
		return p.restore(ctx, claim, source)
	}
	return p.clone(ctx, claim, source)
}

// restore makes sure that a VolumeSnapshot is ready, ours and fits the claim.
func (p *Provisioner) restore(ctx context.Context, claim *v1.PersistentVolumeClaim, source watch.Object) (*csi.VolumeContentSource, Outcome, error) {
	if !p.config.DriverRestores {
		return nil, Finished, fmt.Errorf("claim.spec.dataSource is VolumeSnapshot %s: driver %s makes no snapshots; remove it", source.Name, p.config.DriverName)
	}
	var snapshot volumeSnapshot
	if err := p.read(ctx, source, &snapshot); err != nil {
		return nil, Unchanged, err
	}
	if err := isUsable(source, &snapshot); err != nil {
		return nil, Unchanged, watch.NotReady(source, snapshot.ResourceVersion, err)
	}
	bound := watch.Object{Resource: watch.VolumeSnapshotContents, Name: *snapshot.Status.Content}
	var content volumeSnapshotContent
	if err := p.read(ctx, bound, &content); err != nil {
		return nil, Unchanged, err
	}
	if err := p.isOurContent(&snapshot, &content); err != nil {
		return nil, Finished, err
	}
	if ptr.Deref(content.Status.Handle, "") == "" {
		return nil, Unchanged, watch.NotReady(bound, content.ResourceVersion, fmt.Errorf("%s has no snapshotHandle yet", bound))
	}
	if least := snapshot.Status.RestoreSize; least != nil && requestOf(claim).Cmp(*least) < 0 {
		return nil, Unchanged, fmt.Errorf("claim.spec.resources.requests.storage is %s, less than the %s of snapshot %s; ask for as much at least", requestOf(claim), least, source.Name)
	}
	if err := p.mayChangeMode(claim, &content); err != nil {
		return nil, Finished, err
	}
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Snapshot{
		Snapshot: &csi.VolumeContentSource_SnapshotSource{SnapshotId: *content.Status.Handle},
	}}, Unchanged, nil
}

// isUsable returns an error that says why a volume can't be made of the snapshot yet.
func isUsable(source watch.Object, snapshot *volumeSnapshot) error {
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

// isOurContent returns an error unless the content is the snapshot's and this driver's.
func (p *Provisioner) isOurContent(snapshot *volumeSnapshot, content *volumeSnapshotContent) error {
	ref := content.Spec.Snapshot
	switch {
	case ref.UID != snapshot.UID || ref.Namespace != snapshot.Namespace || ref.Name != snapshot.Name:
		return fmt.Errorf("VolumeSnapshotContent %s is of snapshot %s/%s, not of %s/%s", content.Name, ref.Namespace, ref.Name, snapshot.Namespace, snapshot.Name)
	case content.Spec.Driver != p.config.DriverName:
		return fmt.Errorf("snapshot %s/%s is of driver %s; %s can't make a volume of it", snapshot.Namespace, snapshot.Name, content.Spec.Driver, p.config.DriverName)
	}
	return nil
}

// mayChangeMode returns an error for a claim that reads a file system as a block
// device, or the other way, without leave: it may confuse the node's kernel.
func (p *Provisioner) mayChangeMode(claim *v1.PersistentVolumeClaim, content *volumeSnapshotContent) error {
	was := content.Spec.SourceMode
	if !p.config.PreventModeConversion || was == nil || *was == modeOf(claim.Spec.VolumeMode) {
		return nil
	}
	if allowed, err := strconv.ParseBool(content.Annotations[allowModeChange]); err == nil && allowed {
		return nil
	}
	return fmt.Errorf("claim.spec.volumeMode is %s, the snapshot's volume was %s; to allow it, annotate VolumeSnapshotContent %s with %s=true",
		modeOf(claim.Spec.VolumeMode), *was, content.Name, allowModeChange)
}

// clone makes sure that a claim is bound to a volume of ours that fits.
func (p *Provisioner) clone(ctx context.Context, claim *v1.PersistentVolumeClaim, source watch.Object) (*csi.VolumeContentSource, Outcome, error) {
	if !p.config.DriverClones {
		return nil, Finished, fmt.Errorf("claim.spec.dataSource is claim %s: driver %s copies no volumes; remove it", source.Name, p.config.DriverName)
	}
	from, err := p.client.CoreV1().PersistentVolumeClaims(source.Namespace).Get(ctx, source.Name, metav1.GetOptions{})
	if err != nil {
		return nil, Unchanged, watch.ReadError(source, err)
	}
	switch {
	case from.DeletionTimestamp != nil:
		return nil, Unchanged, watch.NotReady(source, from.ResourceVersion, fmt.Errorf("%s is being deleted", source))
	case from.Status.Phase != v1.ClaimBound || from.Spec.VolumeName == "":
		return nil, Unchanged, watch.NotReady(source, from.ResourceVersion, fmt.Errorf("%s is not bound yet", source))
	case modeOf(from.Spec.VolumeMode) != modeOf(claim.Spec.VolumeMode):
		return nil, Finished, fmt.Errorf("claim.spec.volumeMode is %s, that of %s is %s; a copy has the same", modeOf(claim.Spec.VolumeMode), source, modeOf(from.Spec.VolumeMode))
	}
	pv, err := p.client.CoreV1().PersistentVolumes().Get(ctx, from.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return nil, Unchanged, err
	}
	size := pv.Spec.Capacity[v1.ResourceStorage]
	switch {
	case pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != from.UID:
		return nil, Unchanged, fmt.Errorf("PersistentVolume %s is not bound to %s", pv.Name, source)
	case pv.Spec.CSI == nil || pv.Spec.CSI.Driver != p.config.DriverName:
		return nil, Finished, fmt.Errorf("the volume of %s is not of driver %s, which can't copy it", source, p.config.DriverName)
	case requestOf(claim).Cmp(size) < 0:
		return nil, Unchanged, fmt.Errorf("claim.spec.resources.requests.storage is %s, less than the %s of %s; ask for as much at least", requestOf(claim), &size, source)
	}
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{
		Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: pv.Spec.CSI.VolumeHandle},
	}}, Unchanged, nil
}

func requestOf(claim *v1.PersistentVolumeClaim) *resource.Quantity {
	request := claim.Spec.Resources.Requests[v1.ResourceStorage]
	return &request
}

func modeOf(mode *v1.PersistentVolumeMode) v1.PersistentVolumeMode {
	return ptr.Deref(mode, v1.PersistentVolumeFilesystem)
}

// read reads an object of a kind that is no part of Kubernetes itself.
func (p *Provisioner) read(ctx context.Context, o watch.Object, into any) error {
	if p.dynamic == nil {
		return fmt.Errorf("%s: no client for it", o)
	}
	live, err := p.dynamic.Resource(o.Resource).Namespace(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
	if err != nil {
		return watch.ReadError(o, err)
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, into)
}
