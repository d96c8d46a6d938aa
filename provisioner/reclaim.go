package provisioner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilwait "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"

	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
)

// mayDelete says whether the PersistentVolume's disk may be deleted: it was
// made by this provisioner, its claim has let it go, and its policy is Delete.
// One that is being deleted is still ours as long as it has our finalizer.
func mayDelete(pv *v1.PersistentVolume, driver string) bool {
	return request.IsMadeBy(pv, driver) &&
		pv.Status.Phase == v1.VolumeReleased &&
		pv.Spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimDelete &&
		(pv.DeletionTimestamp == nil || request.HasFinalizer(pv))
}

// mayLetGo says whether a PersistentVolume that is being deleted only waits
// for our finalizer although its disk is to be kept: its policy says so, or it
// is available to any claim, and nobody knows whose data it has.
func mayLetGo(pv *v1.PersistentVolume, driver string) bool {
	return request.IsMadeBy(pv, driver) && pv.DeletionTimestamp != nil && request.HasFinalizer(pv) &&
		(pv.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimDelete || wasNeverBound(pv) && request.ClaimUID(pv) == "")
}

// mayBeNeedless says whether a PersistentVolume is being deleted before it was
// bound to the claim that it was made for: no Pod has ever had its disk.
// Kubernetes binds no claim to it any more, and does not release it either.
func mayBeNeedless(pv *v1.PersistentVolume, driver string) bool {
	return request.IsMadeBy(pv, driver) && pv.DeletionTimestamp != nil && request.HasFinalizer(pv) && wasNeverBound(pv) && request.ClaimUID(pv) != "" &&
		pv.Spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimDelete
}

// mayProtect says whether a PersistentVolume lacks our finalizer: it is from a time
// when provisioners set none, or its policy became Delete since it was made. It
// must not go before its disk does.
func mayProtect(pv *v1.PersistentVolume, driver string) bool {
	return request.IsMadeBy(pv, driver) && pv.DeletionTimestamp == nil && !request.HasFinalizer(pv) &&
		pv.Status.Phase == v1.VolumeBound && pv.Spec.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimDelete
}

func wasNeverBound(pv *v1.PersistentVolume) bool {
	return pv.Status.Phase == "" || pv.Status.Phase == v1.VolumePending || pv.Status.Phase == v1.VolumeAvailable
}

// deletionObserver hears of every finished attempt to delete a volume.
type deletionObserver func(class string, start time.Time, err error)

// reclaimer deletes the disks of PersistentVolumes that mayDelete allows.
type reclaimer struct {
	p           *Provisioner
	volumes     cache.Indexer // PersistentVolumes by name
	attachments cache.Indexer // VolumeAttachments
	queue       workqueue.TypedRateLimitingInterface[string]
	observe     deletionObserver
	progress    *progress
	over        *lru.Cache // UIDs of PersistentVolumes that wait for nothing of ours any more
}

// rememberedEnds is for how many PersistentVolumes it is remembered that they are
// over while the cache may still show them.
const rememberedEnds = 4096

func newReclaimer(p *Provisioner, volumes, attachments cache.Indexer, observe deletionObserver) *reclaimer {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](p.config.RetryStart, p.config.RetryMax)
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[string]{Name: "volumes"})
	return &reclaimer{p: p, volumes: volumes, attachments: attachments, queue: queue, observe: observe, progress: newProgress(p.now), over: lru.New(rememberedEnds)}
}

// volumeChanged files a PersistentVolume that may have something to be done.
func (r *reclaimer) volumeChanged(pv *v1.PersistentVolume) {
	driver := r.p.config.DriverName
	if mayDelete(pv, driver) || mayLetGo(pv, driver) || mayBeNeedless(pv, driver) || mayProtect(pv, driver) {
		r.file(pv.Name)
	}
	if mayDelete(pv, driver) || mayBeNeedless(pv, driver) {
		r.othersGoOn(pv)
	}
}

// file has a PersistentVolume looked at now.
func (r *reclaimer) file(name string) {
	r.progress.enqueue(types.UID(name))
	r.queue.Add(name)
}

// attachmentGone files the volume of a VolumeAttachment that no longer exists.
func (r *reclaimer) attachmentGone(attachment *storagev1.VolumeAttachment) {
	if name := attachment.Spec.Source.PersistentVolumeName; name != nil {
		r.file(*name)
	}
}

// run works until ctx ends, and returns when the last call to the driver is answered.
func (r *reclaimer) run(ctx context.Context) {
	r.progress.begin()
	defer r.progress.end()
	var group utilwait.Group
	for range r.p.config.Workers {
		group.Start(func() {
			for r.next(context.WithoutCancel(ctx)) {
			}
		})
	}
	<-ctx.Done()
	r.queue.ShutDown()
	group.Wait()
}

func (r *reclaimer) next(ctx context.Context) bool {
	name, shutdown := r.queue.Get()
	if shutdown {
		return false
	}
	defer r.queue.Done(name)
	r.progress.work(types.UID(name))
	defer r.progress.work(types.UID(name))
	err := r.reclaim(ctx, name)
	r.p.objects.SubscribeError("persistentvolume "+name, err, func() { r.file(name) })
	var shared *sharedError
	if errors.As(err, &shared) { // the other's end, or its release, has it looked at again
		klog.InfoS("A disk is kept", "persistentVolume", name, "why", err)
		r.queue.Forget(name)
		return true
	}
	if err != nil {
		klog.ErrorS(err, "Deleting a volume failed, it is tried again", "persistentVolume", name)
		r.queue.AddRateLimited(name)
		return true
	}
	r.queue.Forget(name)
	return true
}

// reclaim brings one PersistentVolume to its end, if it may.
func (r *reclaimer) reclaim(ctx context.Context, name string) error {
	object, exists, err := r.volumes.GetByKey(name)
	if err != nil || !exists {
		return err
	}
	pv := object.(*v1.PersistentVolume)
	if _, over := r.over.Get(pv.UID); over {
		return nil
	}
	if mayLetGo(pv, r.p.config.DriverName) {
		if err := r.isMade(ctx, pv); err != nil {
			return err
		}
		return r.letGo(ctx, pv)
	}
	if mayProtect(pv, r.p.config.DriverName) {
		return r.p.addFinalizer(ctx, pv)
	}
	if !mayDelete(pv, r.p.config.DriverName) && !mayBeNeedless(pv, r.p.config.DriverName) {
		return nil
	}
	if err := r.isMade(ctx, pv); err != nil {
		return err
	}
	start := r.p.now()
	deleted, err := r.deleteDisk(ctx, pv)
	var shared *sharedError
	switch {
	case errors.As(err, &shared):
		r.p.events.Event(pv, v1.EventTypeWarning, reasonKept, err.Error())
		return err
	case err != nil:
		r.p.events.Event(pv, v1.EventTypeWarning, reasonDeleteFailed, err.Error())
	}
	if deleted || err != nil {
		r.observe(pv.Spec.StorageClassName, start, err)
	}
	return err
}

// isMade returns an error as long as a crash might have the volume made once
// more: disk and PersistentVolume go only when nobody will look for them any more.
func (r *reclaimer) isMade(ctx context.Context, pv *v1.PersistentVolume) error {
	claim := request.ClaimUID(pv)
	err := r.p.journal.isOver(ctx, claim)
	if errors.Is(err, errUnderWay) {
		if o := r.p.journal.find(claim); o != nil {
			r.p.look(o.Claim) // the order's end is known, since its volume is there
		}
	}
	return err
}

// deleteDisk deletes the disk first and its PersistentVolume last, so that a
// crash in between leaves a PersistentVolume that says what is to be done. It
// returns false without an error if the disk is not to be deleted after all.
func (r *reclaimer) deleteDisk(ctx context.Context, cached *v1.PersistentVolume) (deleted bool, err error) {
	if err := r.isDetached(cached); err != nil {
		return false, err
	}
	pv, err := r.p.recheck(ctx, cached)
	if err != nil || pv == nil {
		return false, err
	}
	secrets, err := r.p.deletionSecrets(ctx, pv)
	if err != nil {
		return false, err
	}
	if err := r.isShared(ctx, pv); err != nil {
		return false, err
	}
	callCtx, cancel := context.WithTimeout(ctx, r.p.config.Timeout)
	defer cancel()
	if _, err := r.p.driver.DeleteVolume(callCtx, &csi.DeleteVolumeRequest{VolumeId: pv.Spec.CSI.VolumeHandle, Secrets: secrets}); err != nil {
		return false, fmt.Errorf("DeleteVolume %s: %w", pv.Spec.CSI.VolumeHandle, err)
	}
	err = r.p.client.CoreV1().PersistentVolumes().Delete(ctx, pv.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pv.UID))})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, err
	}
	return true, r.letGo(ctx, pv)
}

// letGo lets a PersistentVolume that is being deleted go. Nothing is left to do
// for it then, though the cache still shows it for a moment.
func (r *reclaimer) letGo(ctx context.Context, pv *v1.PersistentVolume) error {
	if err := r.p.removeFinalizer(ctx, pv); err != nil {
		return err
	}
	r.over.Add(pv.UID, nil)
	return nil
}

// isDetached returns an error naming a node that still holds the volume.
func (r *reclaimer) isDetached(pv *v1.PersistentVolume) error {
	attachments, err := watch.AttachmentsOfVolume(r.attachments, pv.Name)
	if err != nil {
		return err
	}
	for _, attachment := range attachments {
		if attachment.Spec.Attacher == r.p.config.DriverName {
			return fmt.Errorf("persistentvolume %s is still attached to node %s", pv.Name, attachment.Spec.NodeName)
		}
	}
	return nil
}

// recheck returns the PersistentVolume as it is now, or nil if its disk may
// not be deleted any more: no disk is deleted on the word of a cache alone.
func (p *Provisioner) recheck(ctx context.Context, cached *v1.PersistentVolume) (*v1.PersistentVolume, error) {
	pv, err := p.client.CoreV1().PersistentVolumes().Get(ctx, cached.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	switch {
	case pv.UID != cached.UID:
		return nil, nil
	case mayDelete(pv, p.config.DriverName):
		return pv, nil
	case mayBeNeedless(pv, p.config.DriverName):
		return p.recheckNeedless(ctx, pv)
	}
	return nil, nil
}

// recheckNeedless returns the PersistentVolume if its claim is without it, and
// nil if Kubernetes is about to bind or release it. One that was not made for
// its claim may have been brought here with data: it is let go without its disk.
func (p *Provisioner) recheckNeedless(ctx context.Context, pv *v1.PersistentVolume) (*v1.PersistentVolume, error) {
	needless, err := p.isNeedless(ctx, pv)
	switch {
	case err != nil || !needless:
		return nil, err
	case !p.config.IsMadeForClaim(pv):
		return nil, p.removeFinalizer(ctx, pv)
	}
	return pv, nil
}

// isNeedless says whether the claim of a PersistentVolume that was never bound is
// there, and without it.
func (p *Provisioner) isNeedless(ctx context.Context, pv *v1.PersistentVolume) (bool, error) {
	ref := pv.Spec.ClaimRef
	claim, err := p.client.CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, err
	}
	return claim.UID == ref.UID && claim.Spec.VolumeName != pv.Name, nil
}

// deletionSecrets reads the Secret that the PersistentVolume names for its
// deletion, or its class if it is from a time when PersistentVolumes named none.
func (p *Provisioner) deletionSecrets(ctx context.Context, pv *v1.PersistentVolume) (map[string]string, error) {
	ref, named := request.DeletionSecret(pv)
	if !named {
		var err error
		if ref, err = p.classDeletionSecret(ctx, pv); err != nil {
			return nil, err
		}
	}
	return p.deletionSecret(ctx, pv, ref)
}

// deletionSecret reads a Secret that a deletion needs. Without it nothing is
// deleted: other keys may not see the disk, which would be taken for gone, and
// nobody would know of it any more.
func (p *Provisioner) deletionSecret(ctx context.Context, pv *v1.PersistentVolume, ref *v1.SecretReference) (map[string]string, error) {
	secrets, err := p.readSecret(ctx, ref)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("the disk of PersistentVolume %s is deleted with the keys of a Secret that is not there: %w; make it again, or, if the driver's own keys see the disk, annotate the PersistentVolume with %s and %s, both empty",
			pv.Name, err, request.AnnDeletionSecretName, request.AnnDeletionSecretNamespace)
	}
	return secrets, err
}

// classDeletionSecret returns the Secret that the PersistentVolume's class names.
// Without the class nobody knows whose keys the disk was made with, and others
// may not see it: then it would be taken for deleted.
func (p *Provisioner) classDeletionSecret(ctx context.Context, pv *v1.PersistentVolume) (*v1.SecretReference, error) {
	if pv.Spec.StorageClassName == "" {
		return nil, nil
	}
	class, err := p.client.StorageV1().StorageClasses().Get(ctx, pv.Spec.StorageClassName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("class %s is gone, and PersistentVolume %s does not say with which Secret its disk is deleted; annotate it with %s and %s, empty for none",
			pv.Spec.StorageClassName, pv.Name, request.AnnDeletionSecretName, request.AnnDeletionSecretNamespace)
	}
	if err != nil {
		return nil, err
	}
	return request.ClassDeletionSecret(class, pv)
}

// addFinalizer keeps the PersistentVolume until its disk is deleted, unless it is
// being deleted by now.
func (p *Provisioner) addFinalizer(ctx context.Context, pv *v1.PersistentVolume) error {
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"finalizers":[%q]}}`, pv.UID, request.Finalizer)
	_, err := p.client.CoreV1().PersistentVolumes().Patch(ctx, pv.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsConflict(err) {
		klog.V(2).InfoS("A PersistentVolume can't be given the finalizer any more", "persistentVolume", pv.Name, "why", err)
		return nil
	}
	return err
}

// removeFinalizer lets the PersistentVolume go, whatever other finalizers come
// and go meanwhile.
func (p *Provisioner) removeFinalizer(ctx context.Context, pv *v1.PersistentVolume) error {
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"$deleteFromPrimitiveList/finalizers":[%q]}}`, pv.UID, request.Finalizer)
	_, err := p.client.CoreV1().PersistentVolumes().Patch(ctx, pv.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
