package source

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilwait "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
)

// snapshotFinalizer keeps a snapshot while a volume is made of it, as request.CloneFinalizer keeps a claim. It is upstream csi-provisioner's, too.
const snapshotFinalizer = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection"

func finalizerOf(o watch.Object) string {
	if o.Resource == watch.VolumeSnapshots {
		return snapshotFinalizer
	}
	return request.CloneFinalizer
}

// removalTimeout bounds one attempt to remove a finalizer.
const removalTimeout = 30 * time.Second

// Protection keeps sources from being deleted while a volume is made of them.
type Protection struct {
	objects metadata.Interface
	volumes cache.Store // PersistentVolumes, trimmed
	reader  *Reader
	queue   workqueue.TypedRateLimitingInterface[watch.Object] // sources that may have an unneeded finalizer

	mu       sync.Mutex
	removed  *sync.Cond                 // the removal of a finalizer has ended
	sources  map[types.UID]watch.Object // by the claim that uses it
	removing watch.Object               // whose finalizer is being removed; zero for none
}

// NewProtection returns a Protection. It removes finalizers only while it runs.
func NewProtection(objects metadata.Interface, volumes cache.Store, reader *Reader) *Protection {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[watch.Object](reader.options.RetryStart, reader.options.RetryMax)
	p := &Protection{
		objects: objects, volumes: volumes, reader: reader,
		queue:   workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[watch.Object]{Name: "sources"}),
		sources: map[types.UID]watch.Object{},
	}
	p.removed = sync.NewCond(&p.mu)
	return p
}

// Protect returns nil once the claim's source, if it has one, cannot be deleted
// before Unprotect is called.
func (p *Protection) Protect(ctx context.Context, claim *v1.PersistentVolumeClaim) error {
	source, ok := Of(claim)
	if !ok {
		return nil
	}
	p.use(claim.UID, source)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { return p.addFinalizer(ctx, source) }) // snapshot-controller writes to it, too
	if err != nil {
		p.Unprotect(claim.UID)
	}
	return err
}

// Recover notes that the claim's source was protected by an earlier process.
func (p *Protection) Recover(claim *v1.PersistentVolumeClaim) {
	if source, ok := Of(claim); ok {
		p.use(claim.UID, source)
	}
}

// Recheck removes the finalizer of the claim's source if no claim uses it.
func (p *Protection) Recheck(claim *v1.PersistentVolumeClaim) {
	if source, ok := Of(claim); ok {
		p.queue.Add(source)
	}
}

// Unprotect notes that no volume is made for the claim any more.
func (p *Protection) Unprotect(claim types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	source, ok := p.sources[claim]
	if !ok {
		return
	}
	if delete(p.sources, claim); !p.isUsed(source) {
		p.queue.Add(source)
	}
}

// isUsed says whether any claim uses the source. p.mu is held.
func (p *Protection) isUsed(source watch.Object) bool {
	for _, used := range p.sources {
		if used == source {
			return true
		}
	}
	return false
}

// ClaimChanged queues a claim of this driver that is being deleted and has the finalizer
// of a process that ended before it could remove it.
func (p *Protection) ClaimChanged(claim *v1.PersistentVolumeClaim) {
	if claim.DeletionTimestamp != nil && slices.Contains(claim.Finalizers, request.CloneFinalizer) && p.isOurs(claim) {
		p.queue.Add(watch.Object{Resource: watch.PersistentVolumeClaims, Namespace: claim.Namespace, Name: claim.Name})
	}
}

// isOurs says whether the claim's volume is this driver's. A claim that was bound by hand names no provisioner.
func (p *Protection) isOurs(claim *v1.PersistentVolumeClaim) bool {
	pv := watch.Get[*v1.PersistentVolume](p.volumes, claim.Spec.VolumeName)
	if pv == nil {
		return request.ProvisionerOf(claim) == p.reader.options.DriverName
	}
	return pv.Spec.CSI != nil && pv.Spec.CSI.Driver == p.reader.options.DriverName
}

// use records that the claim uses the source. It waits while the finalizer of the source
// is being removed.
func (p *Protection) use(claim types.UID, source watch.Object) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.removing == source {
		p.removed.Wait()
	}
	p.sources[claim] = source
}

// addFinalizer adds the finalizer to a source that lacks it.
func (p *Protection) addFinalizer(ctx context.Context, source watch.Object) error {
	live, err := p.objects.Resource(source.Resource).Namespace(source.Namespace).Get(ctx, source.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return watch.ReadError(source, err)
	case slices.Contains(live.Finalizers, finalizerOf(source)):
		return nil
	case live.DeletionTimestamp != nil:
		return watch.NotReady(source, live.ResourceVersion, fmt.Errorf("%s is being deleted", source))
	}
	return p.patch(ctx, source, live, append(live.Finalizers, finalizerOf(source)))
}

// patch changes the finalizers of an object that is still what was read.
func (p *Protection) patch(ctx context.Context, source watch.Object, read *metav1.PartialObjectMetadata, finalizers []string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": read.UID, "resourceVersion": read.ResourceVersion, "finalizers": finalizers,
	}})
	if err != nil {
		return err
	}
	objects := p.objects.Resource(source.Resource).Namespace(source.Namespace)
	if _, err := objects.Patch(ctx, source.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("the finalizer of %s: %w", source, err)
	}
	return nil
}

// Run removes finalizers until ctx ends.
func (p *Protection) Run(ctx context.Context) {
	var group utilwait.Group
	group.Start(func() {
		for p.next(context.WithoutCancel(ctx)) {
		}
	})
	if o := p.reader.options; o.Sweep > 0 && o.Snapshots {
		group.Start(func() { utilwait.UntilWithContext(ctx, p.sweep, o.Sweep) })
	}
	<-ctx.Done()
	p.queue.ShutDown()
	group.Wait()
}

func (p *Protection) next(ctx context.Context) bool {
	source, shutdown := p.queue.Get()
	if shutdown {
		return false
	}
	defer p.queue.Done(source)
	if err := p.removeFinalizer(ctx, source); err != nil {
		if !apierrors.IsConflict(err) {
			klog.ErrorS(err, "Removing the finalizer of a source failed, will retry", "object", source.String())
		}
		p.queue.AddRateLimited(source)
		return true
	}
	p.queue.Forget(source)
	return true
}

// removeFinalizer removes the finalizer of a source that no claim uses.
func (p *Protection) removeFinalizer(ctx context.Context, source watch.Object) error {
	if !p.beginRemoval(source) {
		return nil
	}
	defer p.endRemoval()
	ctx, cancel := context.WithTimeout(ctx, removalTimeout)
	defer cancel()
	live, err := p.objects.Resource(source.Resource).Namespace(source.Namespace).Get(ctx, source.Name, metav1.GetOptions{})
	if err == nil {
		others := slices.DeleteFunc(slices.Clone(live.Finalizers), func(f string) bool { return f == finalizerOf(source) })
		if len(others) == len(live.Finalizers) {
			return nil
		}
		err = p.patch(ctx, source, live, others)
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (p *Protection) beginRemoval(source watch.Object) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isUsed(source) {
		return false
	}
	p.removing = source
	return true
}

func (p *Protection) endRemoval() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.removing = watch.Object{}
	p.removed.Broadcast()
}
