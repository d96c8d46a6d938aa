package provisioner

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilwait "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
)

// The finalizers that keep a source while a volume is made of it, upstream
// csi-provisioner's.
const (
	cloneFinalizer    = "provisioner.storage.kubernetes.io/cloning-protection"
	snapshotFinalizer = "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection"
)

func sourceFinalizer(o watch.Object) string {
	if o.Resource == watch.VolumeSnapshots {
		return snapshotFinalizer
	}
	return cloneFinalizer
}

// protection keeps sources from being deleted while an order under way needs
// them, and lets them go afterwards.
type protection struct {
	objects metadata.Interface
	queue   workqueue.TypedRateLimitingInterface[watch.Object] // sources that nobody may need any more

	mu      sync.Mutex
	freed   *sync.Cond
	held    map[watch.Object]map[types.UID]bool // by claim
	holds   map[types.UID]watch.Object
	freeing map[watch.Object]bool
}

func newProtection(objects metadata.Interface, config Config) *protection {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[watch.Object](config.RetryStart, config.RetryMax)
	s := &protection{
		objects: objects, queue: workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[watch.Object]{Name: "sources"}),
		held: map[watch.Object]map[types.UID]bool{}, holds: map[types.UID]watch.Object{}, freeing: map[watch.Object]bool{},
	}
	s.freed = sync.NewCond(&s.mu)
	return s
}

// hold notes that an order for the claim needs the source. It waits while the
// source is being let go, for its finalizer must be looked at anew then.
func (s *protection) hold(claim types.UID, o watch.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.freeing[o] {
		s.freed.Wait()
	}
	if s.held[o] == nil {
		s.held[o] = map[types.UID]bool{}
	}
	s.held[o][claim] = true
	s.holds[claim] = o
}

// drop notes that there is no order for the claim any more.
func (s *protection) drop(claim types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.holds[claim]
	if !ok {
		return
	}
	delete(s.holds, claim)
	delete(s.held[o], claim)
	if len(s.held[o]) == 0 {
		delete(s.held, o)
		s.queue.Add(o)
	}
}

// protect makes sure that the order's source, if it has one, outlives the order.
func (p *Provisioner) protect(ctx context.Context, o *order) error {
	source, ok := sourceObject(o.Claim)
	if !ok {
		return nil
	}
	p.sources.hold(o.Claim.UID, source)
	err := p.sources.finalize(ctx, source)
	if err != nil {
		p.sources.drop(o.Claim.UID)
	}
	return err
}

// finalize puts the finalizer on a source that lacks it.
func (s *protection) finalize(ctx context.Context, o watch.Object) error {
	live, err := s.objects.Resource(o.Resource).Namespace(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return watch.ReadError(o, err)
	case slices.Contains(live.Finalizers, sourceFinalizer(o)):
		return nil
	case live.DeletionTimestamp != nil:
		return watch.NotReady(o, live.ResourceVersion, fmt.Errorf("%s is being deleted", o))
	}
	return s.write(ctx, o, live, append(live.Finalizers, sourceFinalizer(o)))
}

// write changes the finalizers of an object that is still what was read.
func (s *protection) write(ctx context.Context, o watch.Object, read *metav1.PartialObjectMetadata, finalizers []string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": read.UID, "resourceVersion": read.ResourceVersion, "finalizers": finalizers,
	}})
	if err != nil {
		return err
	}
	if _, err := s.objects.Resource(o.Resource).Namespace(o.Namespace).Patch(ctx, o.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("the finalizer of %s: %w", o, err)
	}
	return nil
}

// run lets sources go until ctx ends.
func (s *protection) run(ctx context.Context, threads int) {
	var group utilwait.Group
	for range threads {
		group.Start(func() {
			for s.next(context.WithoutCancel(ctx)) {
			}
		})
	}
	<-ctx.Done()
	s.queue.ShutDown()
	group.Wait()
}

func (s *protection) next(ctx context.Context) bool {
	o, shutdown := s.queue.Get()
	if shutdown {
		return false
	}
	defer s.queue.Done(o)
	if err := s.free(ctx, o); err != nil {
		if !apierrors.IsConflict(err) {
			klog.ErrorS(err, "A source can't be let go yet, it is tried again", "object", o.String())
		}
		s.queue.AddRateLimited(o)
		return true
	}
	s.queue.Forget(o)
	return true
}

// free takes the finalizer off a source that no order needs.
func (s *protection) free(ctx context.Context, o watch.Object) error {
	if !s.begin(o) {
		return nil
	}
	defer s.end(o)
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	live, err := s.objects.Resource(o.Resource).Namespace(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
	if err != nil {
		return ignoreNotFound(err)
	}
	left := slices.DeleteFunc(slices.Clone(live.Finalizers), func(f string) bool { return f == sourceFinalizer(o) })
	if len(left) == len(live.Finalizers) {
		return nil
	}
	return ignoreNotFound(s.write(ctx, o, live, left))
}

func (s *protection) begin(o watch.Object) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.held[o]) > 0 {
		return false
	}
	s.freeing[o] = true
	return true
}

func (s *protection) end(o watch.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.freeing, o)
	s.freed.Broadcast()
}

// claimChanged lets a claim of ours go that is being deleted and was left with
// the finalizer by a process that ended too early.
func (s *protection) claimChanged(claim *v1.PersistentVolumeClaim, driver string) {
	if claim.DeletionTimestamp != nil && request.ProvisionerOf(claim) == driver && slices.Contains(claim.Finalizers, cloneFinalizer) {
		s.queue.Add(watch.Object{Resource: watch.PersistentVolumeClaims, Namespace: claim.Namespace, Name: claim.Name})
	}
}

// sweepSources lets snapshots go that were left with the finalizer by a process
// that ended too early: now, and every Config.SnapshotSweep.
func (p *Provisioner) sweepSources(ctx context.Context) {
	utilwait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := p.sweepSnapshots(ctx); err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "Looking for snapshots that nobody needs any more failed")
		}
	}, p.config.SnapshotSweep)
}

// sweepPage is how many snapshots are listed at a time.
const sweepPage = 500

func (p *Provisioner) sweepSnapshots(ctx context.Context) error {
	options := metav1.ListOptions{Limit: sweepPage}
	for {
		list, err := p.sources.objects.Resource(watch.VolumeSnapshots).List(ctx, options)
		if err != nil {
			return ignoreNotFound(err) // a cluster need not have snapshots
		}
		for i := range list.Items {
			snapshot := &list.Items[i]
			o := watch.Object{Resource: watch.VolumeSnapshots, Namespace: snapshot.Namespace, Name: snapshot.Name}
			if slices.Contains(snapshot.Finalizers, snapshotFinalizer) && p.isOurSnapshot(ctx, o) {
				p.sources.queue.Add(o)
			}
		}
		if options.Continue = list.Continue; options.Continue == "" {
			return nil
		}
	}
}

// isOurSnapshot says whether a snapshot is known to be this driver's: the
// finalizer is the same for every driver's provisioner.
func (p *Provisioner) isOurSnapshot(ctx context.Context, o watch.Object) bool {
	var snapshot volumeSnapshot
	var content volumeSnapshotContent
	if err := p.read(ctx, o, &snapshot); err != nil || snapshot.Status.Content == nil {
		return false
	}
	err := p.read(ctx, watch.Object{Resource: watch.VolumeSnapshotContents, Name: *snapshot.Status.Content}, &content)
	return err == nil && content.Spec.Driver == p.config.DriverName
}
