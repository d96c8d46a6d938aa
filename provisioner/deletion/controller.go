// Package deletion deletes the volumes of PersistentVolumes that are released, and
// then the PersistentVolumes. No volume is deleted because of what a cache shows
// alone, nor while an attempt to provision it may still be under way, or while
// another PersistentVolume stands for it. Nor is one that is attached, as far as the
// cache shows: ECS refuses to delete a disk that is, whatever the cache shows.
package deletion

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"

	"github.com/topodisk/topodisk/internal/errorinfo"
	"github.com/topodisk/topodisk/provisioner/internal/liveness"
	"github.com/topodisk/topodisk/provisioner/internal/turns"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
)

// Reasons of events about PersistentVolumes.
const (
	reasonDeleteFailed = "VolumeFailedDelete" // upstream csi-provisioner's
	reasonKept         = "VolumeKept"
	reasonAttached     = "VolumeStillAttached"
)

// Claims are the claims that volumes are made for.
type Claims interface {
	// Settle returns nil once nothing can have the claim's volume made once more, not even a restart. It wakes an attempt that is under way,
	// and returns ErrUnderWay.
	Settle(ctx context.Context, claim types.UID) error
}

// ErrUnderWay says that an attempt for the claim is under way.
var ErrUnderWay = errors.New("an attempt to provision this claim is still under way")

// Config is what an operator may choose of deletions, and what a Controller works with.
type Config struct {
	Request    request.Options // what PersistentVolumes are made with
	Workers    int             // PersistentVolumes of one namespace's claims that are worked on at the same time; twice as many of all (package turns)
	RetryStart time.Duration   // first wait after a failure; doubles with each one
	RetryMax   time.Duration   // longest wait between two attempts

	Client      kubernetes.Interface
	Volumes     cache.Indexer // PersistentVolumes, with watch.VolumeIndexers
	Attachments cache.Indexer // VolumeAttachments, with watch.AttachmentIndexers
	Objects     *watch.Objects
	Deleter     *Deleter
	Claims      Claims
	Events      record.EventRecorder

	// Observe is called after each attempt that has deleted a volume or failed, unless it
	// waits for an attempt to provision the volume that has only just been woken, or
	// IsSuperseded.
	Observe func(class string, start time.Time, err error)

	// IsSuperseded says whether an error says that another process may lead, which then
	// deletes what this one may not delete any more.
	IsSuperseded func(err error) bool
}

// Controller deletes the volumes of PersistentVolumes.
type Controller struct {
	Config
	queue    workqueue.TypedRateLimitingInterface[string] // names of PersistentVolumes
	liveness *liveness.Monitor
	turns    *turns.Turns
	finished *lru.Cache // UIDs of PersistentVolumes whose finalizer was removed
	running  atomic.Bool
}

// rememberedFinished is for how many PersistentVolumes it is remembered that nothing
// is left to do while the cache may still show them.
const rememberedFinished = 4096

// quietRetries is how often a deletion waits for an attempt to provision its volume before that is reported: with the default
// back-off, for 15 seconds.
const quietRetries = 4

// byWork is the index of the PersistentVolumes that have something to be done, all under one value.
const byWork = "work"

// New returns a Controller. It deletes nothing before it runs.
func New(config Config) *Controller {
	_ = config.Volumes.AddIndexers(cache.Indexers{byWork: watch.Index(func(pv *v1.PersistentVolume) []string { // an error says that it is there
		if hasWork(pv, config.Request.DriverName) {
			return []string{""}
		}
		return nil
	})})
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](config.RetryStart, config.RetryMax)
	return &Controller{
		Config: config, liveness: liveness.New(), turns: turns.New(config.Workers), finished: lru.New(rememberedFinished),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[string]{Name: "volumes"}),
	}
}

// VolumeChanged queues a PersistentVolume that may have something to be done, and
// those that have waited for it to release their common volume.
func (c *Controller) VolumeChanged(pv *v1.PersistentVolume) {
	driver := c.Request.DriverName
	if hasWork(pv, driver) {
		c.enqueue(pv.Name)
	}
	if mayDelete(pv, driver) {
		c.enqueueOthers(pv)
	}
}

// VolumeDeleted queues the PersistentVolumes that have waited for the end of this one.
func (c *Controller) VolumeDeleted(pv *v1.PersistentVolume) { c.enqueueOthers(pv) }

// AttachmentDeleted queues the PersistentVolume of a VolumeAttachment that no longer exists.
func (c *Controller) AttachmentDeleted(attachment *storagev1.VolumeAttachment) {
	if name := attachment.Spec.Source.PersistentVolumeName; name != nil {
		c.enqueue(*name)
	}
}

// RecheckAll queues every PersistentVolume that has something to be done, without waiting for its back-off.
func (c *Controller) RecheckAll() {
	volumes, _ := c.Volumes.ByIndex(byWork, "") // the index is there
	for _, pv := range volumes {
		c.VolumeChanged(pv.(*v1.PersistentVolume))
	}
}

// OldestPending returns how long ago the PersistentVolume was released that has waited
// longest for the deletion of its volume, or 0 if none does. One that is kept, because
// another has the same volume, doesn't wait.
func (c *Controller) OldestPending() time.Duration {
	var oldest time.Duration
	volumes, _ := c.Volumes.ByIndex(byWork, "") // the index is there
	for _, object := range volumes {
		pv := object.(*v1.PersistentVolume)
		if since := pv.Status.LastPhaseTransitionTime; since != nil && isReleased(pv, c.Request.DriverName) && !c.isShared(pv) {
			oldest = max(oldest, time.Since(since.Time))
		}
	}
	return oldest
}

// isShared says whether the cache shows another PersistentVolume of the same volume that is not to be deleted.
func (c *Controller) isShared(pv *v1.PersistentVolume) bool {
	others, _ := c.others(pv) // the index is there
	return slices.ContainsFunc(others, func(other *v1.PersistentVolume) bool { return !mayDelete(other, c.Request.DriverName) })
}

// enqueue queues nothing before the Controller runs, because no worker takes it.
func (c *Controller) enqueue(name string) {
	if !c.running.Load() {
		return
	}
	c.liveness.Queued(name)
	c.queue.Add(name)
}

// CheckLiveness returns an error if the queue was not served for longer than limit.
func (c *Controller) CheckLiveness(limit time.Duration) error { return c.liveness.Check(limit) }

// Run works until ctx ends, and returns when the last call to the driver is answered:
// what is queued then is left to the next leader. It begins with all that the cache shows.
func (c *Controller) Run(ctx context.Context) {
	c.running.Store(true)
	c.liveness.Start()
	defer c.liveness.Stop()
	c.RecheckAll()
	turns.Serve(ctx, c.turns, c.queue, c.namespaceOf, c.attempt)
}

// namespaceOf returns the namespace of a PersistentVolume's claim, nothing for none that the cache shows.
func (c *Controller) namespaceOf(name string) string {
	pv := watch.Get[*v1.PersistentVolume](c.Volumes, name)
	if pv == nil || pv.Spec.ClaimRef == nil {
		return ""
	}
	return pv.Spec.ClaimRef.Namespace
}

// attempt does what is to be done for one PersistentVolume, and queues it again if that has failed.
func (c *Controller) attempt(ctx context.Context, name string) {
	if c.queue.ShuttingDown() { // Get returns what is queued all the same
		return
	}
	c.liveness.Worked(name)
	defer c.liveness.Worked(name)
	err := c.sync(ctx, name)
	c.Objects.SubscribeError("persistentvolume "+name, c.namespaceOf(name), err, func() { c.enqueue(name) })
	var shared *sharedError
	switch {
	case errors.As(err, &shared): // the other's deletion, or its release, queues it again
		klog.InfoS("A volume is kept", "persistentVolume", name, "reason", err)
		c.queue.Forget(name)
	case err != nil:
		klog.ErrorS(err, "Deleting a volume failed, will retry", "persistentVolume", name)
		c.queue.AddRateLimited(name)
	default:
		c.queue.Forget(name)
	}
}

// sync does for one PersistentVolume what is to be done, and reports failures.
func (c *Controller) sync(ctx context.Context, name string) error {
	pv := watch.Get[*v1.PersistentVolume](c.Volumes, name)
	if pv == nil {
		return nil
	}
	if _, finished := c.finished.Get(pv.UID); finished {
		return nil
	}
	start := time.Now()
	deleted, err := c.work(ctx, pv)
	c.report(pv, start, deleted, err)
	return err
}

// work does what is to be done as far as the cache shows, and says whether it has deleted the volume.
func (c *Controller) work(ctx context.Context, pv *v1.PersistentVolume) (deleted bool, err error) {
	driver := c.Request.DriverName
	switch {
	case mayRelease(pv, driver):
		if err := c.settle(ctx, pv); err != nil {
			return false, err
		}
		return false, c.release(ctx, pv)
	case needsFinalizer(pv, driver):
		return false, c.addFinalizer(ctx, pv)
	case mayDelete(pv, driver):
		if err := c.settle(ctx, pv); err != nil {
			return false, err
		}
		return c.deleteVolume(ctx, pv)
	}
	return false, nil
}

func (c *Controller) settle(ctx context.Context, pv *v1.PersistentVolume) error {
	return c.Claims.Settle(ctx, request.ClaimUID(pv))
}

// report reports a failure in an event, and counts it or the deletion.
func (c *Controller) report(pv *v1.PersistentVolume, start time.Time, deleted bool, err error) {
	var shared *sharedError
	var claimed *claimedError
	var attached *attachedError
	switch {
	case errors.As(err, &shared), errors.As(err, &claimed):
		c.Events.Event(pv, v1.EventTypeWarning, reasonKept, err.Error())
		return
	case errors.As(err, &attached): // a Pod that has ended takes a moment to be detached
		c.Events.Event(pv, v1.EventTypeNormal, reasonAttached, err.Error())
		return
	case errors.Is(err, ErrUnderWay) && c.queue.NumRequeues(pv.Name) < quietRetries:
		return
	case c.IsSuperseded(err):
		return
	case err != nil:
		info, _ := errorinfo.Of(err)
		c.Events.AnnotatedEventf(pv, info.Annotations(), v1.EventTypeWarning, reasonDeleteFailed, "%v", err)
	}
	if deleted || err != nil {
		c.Observe(pv.Spec.StorageClassName, start, err)
	}
}
