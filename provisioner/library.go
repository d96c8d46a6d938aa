package provisioner

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v6/controller"
	libmetrics "sigs.k8s.io/sig-storage-lib-external-provisioner/v6/controller/metrics"

	"github.com/topodisk/topodisk/provisioner/csiconn"
	"github.com/topodisk/topodisk/provisioner/internal/liveness"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
)

// This file is all there is of sig-storage-lib-external-provisioner v6. The
// library keeps the queue of claims, its workers, the events and the metrics.
// What it gets wrong is changed from outside, by what it is handed:
//
//	claims    an order under way hides what the cache says of its claim, so that it
//	          comes to its end with the same arguments, whatever becomes of the claim
//	volumes   a claim's volume is found by claimRef, whatever its name; the library
//	          writes nothing into the cache and hears nothing of volumes, for
//	          deletion is package deletion's
//	classes   a deleted class is still there for the orders made from it
//	nodes     every node exists: topology decides what a missing one means
//	client    a PersistentVolume is saved by then; a claim is rescheduled by a
//	          conditional patch and not by writing back what the cache held; events
//	          have a client of their own
//	limiter   backs off from --retry-interval-start to --retry-interval-max, the longest
//	          pause at once for what no volume can serve; a resync cuts none short
//	election  off, since the lock it would use no longer exists in Kubernetes

// libraryVersion is the Kubernetes version the library is told, only to switch
// off what it did for old ones.
const libraryVersion = "v1.30.0"

// library runs the controller library on behalf of a Provisioner.
type library struct {
	p          *Provisioner
	controller *controller.ProvisionController
	claims     *claimsForLibrary
	metrics    libmetrics.Metrics
	liveness   *liveness.Monitor
	limiter    *limiter
	transient  *transientFailures

	rescheduled sync.Map // claim UID -> node that the claim is to be moved off

	mu       sync.Mutex
	draining bool
	active   sync.WaitGroup
}

func newLibrary(
	p *Provisioner, client kubernetes.Interface, events func(namespace string) corev1client.EventInterface, transient *transientFailures, caches *watch.Caches,
	registry prometheus.Registerer,
) *library {
	l := &library{p: p, transient: transient, metrics: libmetrics.New(libmetrics.ControllerSubsystem), liveness: liveness.New(p.now), limiter: newLimiter(p.config)}
	l.claims = &claimsForLibrary{SharedIndexInformer: caches.Claims, p: p, liveness: l.liveness, limiter: l.limiter}
	registry.MustRegister(
		l.metrics.PersistentVolumeClaimProvisionTotal, l.metrics.PersistentVolumeClaimProvisionFailedTotal, l.metrics.PersistentVolumeClaimProvisionDurationSeconds,
		l.metrics.PersistentVolumeDeleteTotal, l.metrics.PersistentVolumeDeleteFailedTotal, l.metrics.PersistentVolumeDeleteDurationSeconds)
	l.controller = controller.NewProvisionController(
		&clientForLibrary{Interface: client, events: events, l: l},
		p.config.DriverName,
		l,
		libraryVersion,
		controller.LeaderElection(false),
		controller.FailedProvisionThreshold(0),
		controller.FailedDeleteThreshold(0),
		controller.Threadiness(p.config.Workers),
		controller.RateLimiter(l.limiter),
		controller.CreateProvisionedPVLimiter(newLimiter(p.config)), // unused: volumes are saved before the library hears of them
		controller.ClaimsInformer(l.claims),
		controller.VolumesInformer(&volumesForLibrary{SharedIndexInformer: caches.Volumes, journal: p.journal}),
		controller.ClassesInformer(&classesForLibrary{SharedIndexInformer: caches.Classes, journal: p.journal}),
		controller.NodesLister(anyNode{}),
		controller.MetricsInstance(l.metrics),
	)
	return l
}

// limiter is the back-off of claims. A claim for which no volume can be made as it is
// (InvalidArgument) gets the longest one at once: a change of the claim or its class
// triggers an attempt anyway. One whose volume may exist (Aborted) gets maxUnknown at
// most, for the driver soon knows.
type limiter struct {
	workqueue.TypedRateLimiter[any]
	longest time.Duration
	invalid sync.Map // claim UID
	unknown sync.Map // claim UID
}

// maxUnknown is the longest back-off before the driver is asked again whether it has
// made a volume.
const maxUnknown = 20 * time.Second

func newLimiter(c Config) *limiter {
	return &limiter{TypedRateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[any](c.RetryStart, c.RetryMax), longest: c.RetryMax}
}

// record notes how the last attempt for a claim ended.
func (l *limiter) record(claim types.UID, outcome Outcome, err error) {
	if outcome == Background && status.Code(err) == codes.Aborted {
		l.unknown.Store(string(claim), true)
	} else {
		l.unknown.Delete(string(claim))
	}
	if outcome == Finished && status.Code(err) == codes.InvalidArgument {
		l.invalid.Store(string(claim), true)
		return
	}
	l.invalid.Delete(string(claim))
}

// When returns the back-off before the next attempt.
func (l *limiter) When(claim any) time.Duration {
	pause := l.TypedRateLimiter.When(claim)
	if _, ok := l.invalid.Load(claim); ok {
		return l.longest
	}
	if _, ok := l.unknown.Load(claim); ok {
		return min(pause, maxUnknown)
	}
	return pause
}

// Forget is called when a claim needs no further attempt.
func (l *limiter) Forget(claim any) {
	l.invalid.Delete(claim)
	l.unknown.Delete(claim)
	l.TypedRateLimiter.Forget(claim)
}

// run works until ctx ends, and returns when the last claim worked on has an
// outcome.
func (l *library) run(ctx context.Context) {
	l.liveness.Start()
	defer l.liveness.Stop()
	go l.controller.Run(context.WithoutCancel(ctx)) // never returns
	<-ctx.Done()
	l.mu.Lock()
	l.draining = true
	l.mu.Unlock()
	l.active.Wait()
}

// enter registers one more claim worked on, unless the library is draining.
func (l *library) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.draining {
		return false
	}
	l.active.Add(1)
	return true
}

// Provision implements the library's Provisioner.
func (l *library) Provision(ctx context.Context, options controller.ProvisionOptions) (pv *v1.PersistentVolume, state controller.ProvisioningState, err error) {
	if !l.enter() {
		err = &csiconn.NotAsked{Err: errors.New("this provisioner is shutting down")}
		l.transient.record(options.PVC.UID, Unchanged, err)
		return nil, controller.ProvisioningNoChange, err
	}
	defer l.active.Done()
	defer l.liveness.Worked(string(options.PVC.UID))
	defer func() {
		if r := recover(); r != nil {
			klog.ErrorS(nil, "A panic while provisioning", "panic", r, "stack", string(debug.Stack()))
			pv, state, err = nil, controller.ProvisioningNoChange, fmt.Errorf("internal error: %v", r)
		}
	}()
	node := ""
	if options.SelectedNode != nil {
		node = options.SelectedNode.Name
	}
	pv, outcome, err := l.p.provision(ctx, options.PVC.DeepCopy(), options.StorageClass, node)
	l.limiter.record(options.PVC.UID, outcome, err)
	l.transient.record(options.PVC.UID, outcome, err)
	if _, exists, err := l.p.claims.Get(options.PVC); err == nil && !exists {
		l.p.waiting.remove(options.PVC.UID) // it was told to be gone while it was begun to wait
	}
	if outcome == Reschedule {
		l.rescheduled.Store(options.PVC.UID, node)
	}
	return pv, stateOf(outcome), libraryError(outcome, err)
}

func stateOf(outcome Outcome) controller.ProvisioningState {
	switch outcome {
	case Background:
		return controller.ProvisioningInBackground
	case Unchanged:
		return controller.ProvisioningNoChange
	case Reschedule:
		return controller.ProvisioningReschedule
	}
	return controller.ProvisioningFinished
}

func libraryError(outcome Outcome, err error) error {
	if outcome == Ignored && err != nil {
		return &controller.IgnoredError{Reason: err.Error()}
	}
	return err
}

// Delete implements the library's Provisioner. It is never called: see ShouldDelete.
func (l *library) Delete(context.Context, *v1.PersistentVolume) error {
	return &controller.IgnoredError{Reason: "volumes are deleted by another controller"}
}

// ShouldDelete implements the library's DeletionGuard: deletion is package deletion's.
func (l *library) ShouldDelete(context.Context, *v1.PersistentVolume) bool { return false }

// SupportsBlock implements the library's BlockProvisioner.
func (l *library) SupportsBlock(context.Context) bool { return true }

// ShouldProvision implements the library's Qualifier.
func (l *library) ShouldProvision(_ context.Context, claim *v1.PersistentVolumeClaim) bool {
	l.mu.Lock()
	draining := l.draining
	l.mu.Unlock()
	if draining {
		return false
	}
	l.p.tellOfPopulator(claim)
	return request.ShouldProvision(claim)
}

// observeDeletion counts a deletion under the library's names.
func (l *library) observeDeletion(class string, start time.Time, err error) {
	if err != nil {
		l.metrics.PersistentVolumeDeleteFailedTotal.WithLabelValues(class).Inc()
		return
	}
	l.metrics.PersistentVolumeDeleteTotal.WithLabelValues(class).Inc()
	l.metrics.PersistentVolumeDeleteDurationSeconds.WithLabelValues(class).Observe(time.Since(start).Seconds())
}

// claimsForLibrary is the informer of claims as the library sees it.
type claimsForLibrary struct {
	cache.SharedIndexInformer
	p        *Provisioner
	liveness *liveness.Monitor
	limiter  *limiter
	handler  cache.ResourceEventHandler
}

// AddEventHandlerWithResyncPeriod lets only claims through that are for this
// driver, and keeps the handler for wake.
func (c *claimsForLibrary) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, resync time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	handler = &countedHandler{ResourceEventHandler: handler, liveness: c.liveness}
	c.handler = handler
	return c.SharedIndexInformer.AddEventHandlerWithResyncPeriod(cache.FilteringResourceEventHandler{
		FilterFunc: func(object any) bool {
			claim, ok := object.(*v1.PersistentVolumeClaim)
			return ok && request.IsOurs(claim, c.p.config.DriverName)
		},
		Handler: &backoffHandler{ResourceEventHandler: handler, limiter: c.limiter},
	}, resync)
}

// backoffHandler drops the resync of a claim in back-off: the library would end the
// back-off.
type backoffHandler struct {
	cache.ResourceEventHandler
	limiter *limiter
}

func (h *backoffHandler) OnUpdate(old, object any) {
	before, now := old.(*v1.PersistentVolumeClaim), object.(*v1.PersistentVolumeClaim)
	if before.ResourceVersion == now.ResourceVersion && h.limiter.NumRequeues(string(now.UID)) > 0 {
		return
	}
	h.ResourceEventHandler.OnUpdate(old, object)
}

// countedHandler notes what the library puts into its queue.
type countedHandler struct {
	cache.ResourceEventHandler
	liveness *liveness.Monitor
}

func (h *countedHandler) OnAdd(object any, isInInitialList bool) {
	h.liveness.Queued(string(object.(*v1.PersistentVolumeClaim).UID))
	h.ResourceEventHandler.OnAdd(object, isInInitialList)
}

func (h *countedHandler) OnUpdate(old, object any) {
	h.liveness.Queued(string(object.(*v1.PersistentVolumeClaim).UID))
	h.ResourceEventHandler.OnUpdate(old, object)
}

// wake has the library look at a claim now.
func (c *claimsForLibrary) wake(claim *v1.PersistentVolumeClaim) { c.handler.OnUpdate(claim, claim) }

// wakeIfChanged has the library look at a claim now if the cache shows another
// version of it: its events were taken for those of the order under way.
func (c *claimsForLibrary) wakeIfChanged(claim *v1.PersistentVolumeClaim) {
	object, exists, err := c.SharedIndexInformer.GetStore().Get(claim)
	if err != nil || !exists {
		return
	}
	if now := object.(*v1.PersistentVolumeClaim); now.ResourceVersion != claim.ResourceVersion {
		c.wake(now)
	}
}

func (c *claimsForLibrary) GetIndexer() cache.Indexer {
	return &claimsIndexer{Indexer: c.SharedIndexInformer.GetIndexer(), journal: c.p.journal, liveness: c.liveness}
}

func (c *claimsForLibrary) GetStore() cache.Store { return c.GetIndexer() }

// AddIndexers is called for the index by UID.
func (c *claimsForLibrary) AddIndexers(indexers cache.Indexers) error {
	return c.SharedIndexInformer.AddIndexers(watch.ByUIDPrefix(indexers))
}

type claimsIndexer struct {
	cache.Indexer
	journal  *orders
	liveness *liveness.Monitor
}

// ByIndex is asked for a claim by its UID, when a worker begins with it. As long as an order is under way
// for it, the claim is what it was when the order was made.
func (i *claimsIndexer) ByIndex(index, uid string) ([]any, error) {
	i.liveness.Worked(uid)
	if o := i.journal.find(types.UID(uid)); o != nil {
		return []any{o.Claim}, nil
	}
	return watch.ClaimsWithUID(i.Indexer, index, uid)
}

// Update does nothing: the cache is the watch's alone.
func (i *claimsIndexer) Update(any) error { return nil }

// volumesForLibrary is the informer of PersistentVolumes as the library sees it.
type volumesForLibrary struct {
	cache.SharedIndexInformer
	journal *orders
}

// AddEventHandlerWithResyncPeriod registers nothing: deletion is package deletion's.
func (volumesForLibrary) AddEventHandlerWithResyncPeriod(cache.ResourceEventHandler, time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return nil, nil
}

func (v volumesForLibrary) GetStore() cache.Store {
	return &volumesStore{Indexer: v.GetIndexer(), journal: v.journal}
}

type volumesStore struct {
	cache.Indexer
	journal *orders
}

// GetByKey is asked for "pvc-<claim UID>", the name that the library believes
// in, before each attempt for the claim, and answers with the claim's
// PersistentVolume, whatever its name. An order whose PersistentVolume is there
// has come to its end, even if the answer to its saving was lost; one whose
// claim somebody has given another volume has not.
func (s *volumesStore) GetByKey(key string) (any, bool, error) {
	const prefix = "pvc-"
	if len(key) <= len(prefix) {
		return nil, false, nil
	}
	claim := types.UID(key[len(prefix):])
	volumes, err := watch.VolumesOfClaim(s.Indexer, claim)
	if err != nil || len(volumes) == 0 {
		return nil, false, err
	}
	o := s.journal.find(claim)
	if o == nil {
		return volumes[0], true, nil
	}
	for _, pv := range volumes {
		if o.IsSavedAs(pv) {
			s.journal.closeSaved(pv)
			return pv, true, nil
		}
	}
	return nil, false, nil
}

// Add does nothing: the cache is the watch's alone.
func (s *volumesStore) Add(any) error { return nil }

// Delete does nothing, too.
func (s *volumesStore) Delete(any) error { return nil }

// classesForLibrary is the informer of StorageClasses as the library sees it.
type classesForLibrary struct {
	cache.SharedIndexInformer
	journal *orders
}

func (c *classesForLibrary) GetStore() cache.Store {
	return &classesStore{Store: c.SharedIndexInformer.GetStore(), journal: c.journal}
}

type classesStore struct {
	cache.Store
	journal *orders
}

func (s *classesStore) GetByKey(name string) (any, bool, error) {
	object, exists, err := s.Store.GetByKey(name)
	if err == nil && !exists {
		if class := s.journal.class(name); class != nil {
			return class, true, nil
		}
	}
	return object, exists, err
}

// anyNode is a lister in which every node exists.
type anyNode struct{}

func (anyNode) List(labels.Selector) ([]*v1.Node, error) { return nil, nil }

func (anyNode) Get(name string) (*v1.Node, error) {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
}

var _ corelisters.NodeLister = anyNode{}

// clientForLibrary is the API client as the library sees it.
type clientForLibrary struct {
	kubernetes.Interface
	events func(namespace string) corev1client.EventInterface
	l      *library
}

func (c *clientForLibrary) CoreV1() corev1client.CoreV1Interface {
	return &coreForLibrary{CoreV1Interface: c.Interface.CoreV1(), client: c}
}

type coreForLibrary struct {
	corev1client.CoreV1Interface
	client *clientForLibrary
}

func (c *coreForLibrary) Events(namespace string) corev1client.EventInterface {
	return c.client.events(namespace)
}

func (c *coreForLibrary) PersistentVolumes() corev1client.PersistentVolumeInterface {
	return savedVolumes{c.CoreV1Interface.PersistentVolumes()}
}

func (c *coreForLibrary) PersistentVolumeClaims(namespace string) corev1client.PersistentVolumeClaimInterface {
	return &reschedulableClaims{PersistentVolumeClaimInterface: c.CoreV1Interface.PersistentVolumeClaims(namespace), l: c.client.l}
}

type savedVolumes struct {
	corev1client.PersistentVolumeInterface
}

// Create answers that the volume is saved: Provision returns none that isn't.
func (savedVolumes) Create(_ context.Context, pv *v1.PersistentVolume, _ metav1.CreateOptions) (*v1.PersistentVolume, error) {
	return pv, nil
}

type reschedulableClaims struct {
	corev1client.PersistentVolumeClaimInterface
	l *library
}

// Update is called to remove a claim's selected node. It removes the node only
// if it is still the one that failed: a newer choice of the scheduler stays.
func (c *reschedulableClaims) Update(ctx context.Context, claim *v1.PersistentVolumeClaim, _ metav1.UpdateOptions) (*v1.PersistentVolumeClaim, error) {
	node, ok := c.l.rescheduled.LoadAndDelete(claim.UID)
	if !ok {
		return nil, fmt.Errorf("claim %s/%s is not to be rescheduled", claim.Namespace, claim.Name)
	}
	patch := fmt.Sprintf(`[
		{"op":"test","path":"/metadata/uid","value":%q},
		{"op":"test","path":"/metadata/annotations/volume.kubernetes.io~1selected-node","value":%q},
		{"op":"remove","path":"/metadata/annotations/volume.kubernetes.io~1selected-node"}]`, claim.UID, node)
	patched, err := c.Patch(ctx, claim.Name, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	if apierrors.IsInvalid(err) || apierrors.IsNotFound(err) {
		return claim, nil // the scheduler has chosen again, or the claim is gone
	}
	return patched, err
}
