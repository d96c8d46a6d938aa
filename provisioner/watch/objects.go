package watch

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/internal/sleep"
)

// maxWatches bounds the objects that are watched at the same time, of which a namespace
// has no more than it leaves free once half of them are. A subscription to one more is
// dropped: its subscriber relies on its own retries.
const maxWatches = 256

// Objects notifies subscribers when single objects change. It watches each object
// alone and by its metadata, only while it has subscribers: so the permission to
// watch what a class names is enough, and no Secret is held in memory. It is safe
// for concurrent use.
type Objects struct {
	client metadata.Interface // nil: nothing is watched

	mu            sync.Mutex
	watches       map[Object]*objectWatch
	subscriptions map[string]Object // by subscriber
	stopped       bool
}

// objectWatch is the watch of one object.
type objectWatch struct {
	namespace   string // of the subscriber for whom it was begun
	subscribers map[string]subscription
	cancel      context.CancelFunc

	version string // the newest resourceVersion that the watch has delivered; empty before the first event
	exists  bool   // according to the last event
}

// subscription is what one subscriber waits for.
type subscription struct {
	version string // the resourceVersion that the subscriber has seen; empty if the object was absent
	notify  func()
}

// isOutdated says whether the watch has delivered a change that the subscriber has not seen.
func (w *objectWatch) isOutdated(s subscription) bool {
	if s.version == "" {
		return w.exists
	}
	return w.version != "" && isNewer(w.version, s.version)
}

// isNewer says whether a resourceVersion is newer than another one. Versions that
// can't be compared count as newer if they differ.
func isNewer(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order > 0 || err != nil && version != than
}

// NewObjects returns an Objects without subscribers. Without a client it never notifies.
func NewObjects(client metadata.Interface) *Objects {
	return &Objects{client: client, watches: map[Object]*objectWatch{}, subscriptions: map[string]Object{}}
}

// SubscribeError subscribes to the object of a NotReadyError in err's chain; with
// another error, or none, it ends the subscriber's subscription.
func (o *Objects) SubscribeError(subscriber, namespace string, err error, notify func()) {
	var notReady *NotReadyError
	if !errors.As(err, &notReady) {
		o.Unsubscribe(subscriber)
		return
	}
	o.Subscribe(subscriber, namespace, notReady.Object, notReady.ResourceVersion, notify)
}

// Subscribe calls notify once, when the object has changed since the resourceVersion;
// at once if that is known already. An empty version says that the object was absent.
// A subscriber has one subscription at most: a new one replaces the last. The namespace
// is that of the claim for which it waits.
func (o *Objects) Subscribe(subscriber, namespace string, object Object, resourceVersion string, notify func()) {
	if !o.add(subscriber, namespace, object, subscription{version: resourceVersion, notify: notify}) {
		notify()
	}
}

// add files a subscription, unless the change has happened already.
func (o *Objects) add(subscriber, namespace string, object Object, s subscription) (pending bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.subscriptions[subscriber] != object {
		o.remove(subscriber)
	}
	w := o.watches[object]
	if w == nil {
		if o.client == nil || o.stopped || !o.hasRoom(namespace) {
			return true
		}
		ctx, cancel := context.WithCancel(context.Background())
		w = &objectWatch{namespace: namespace, subscribers: map[string]subscription{}, cancel: cancel}
		o.watches[object] = w
		go o.run(ctx, object)
	}
	if w.isOutdated(s) {
		o.remove(subscriber)
		return false
	}
	o.subscriptions[subscriber] = object
	w.subscribers[subscriber] = s
	return true
}

// hasRoom says whether one more object may be watched for a claim of the namespace. o.mu is held.
func (o *Objects) hasRoom(namespace string) bool {
	left, own := maxWatches-len(o.watches), 0
	if left > maxWatches/2 {
		return true
	}
	for _, w := range o.watches {
		if w.namespace == namespace {
			own++
		}
	}
	return own < left
}

// Unsubscribe ends a subscriber's subscription. Having none isn't an error.
func (o *Objects) Unsubscribe(subscriber string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.remove(subscriber)
}

// remove ends a subscription, and the watch with its last subscriber. o.mu is held.
func (o *Objects) remove(subscriber string) {
	object, ok := o.subscriptions[subscriber]
	if !ok {
		return
	}
	delete(o.subscriptions, subscriber)
	w := o.watches[object]
	delete(w.subscribers, subscriber)
	if len(w.subscribers) == 0 {
		w.cancel()
		delete(o.watches, object)
	}
}

// Stop ends every subscription and ignores later ones.
func (o *Objects) Stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopped = true
	for subscriber := range o.subscriptions {
		o.remove(subscriber)
	}
}

// run watches one object until ctx ends. A watch without a resourceVersion begins
// with the objects that exist, so of the changes before it only a deletion is missed:
// the subscriber finds that out by its own retries.
func (o *Objects) run(ctx context.Context, object Object) {
	options := metav1.ListOptions{}
	if object.Name != "" {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, object.Name).String()
	}
	for backoff := time.Second; ctx.Err() == nil; backoff = min(2*backoff, time.Minute) {
		events, err := o.client.Resource(object.Resource).Namespace(object.Namespace).Watch(ctx, options)
		if err != nil {
			klog.V(2).ErrorS(err, "An object can't be watched", "object", object.String())
		} else if o.receive(ctx, object, events) {
			backoff = time.Second
		}
		o.forgetEvents(object)
		if sleep.For(ctx, backoff) != nil {
			return
		}
	}
}

// receive handles the events of one watch until it ends, and says whether there were any.
func (o *Objects) receive(ctx context.Context, object Object, events apiwatch.Interface) (received bool) {
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return received
		case event, open := <-events.ResultChan():
			if !open || event.Type == apiwatch.Error {
				return received
			}
			if m, err := meta.Accessor(event.Object); err == nil && (object.Name == "" || m.GetName() == object.Name) {
				received = true
				o.notify(object, m.GetResourceVersion(), event.Type != apiwatch.Deleted)
			}
		}
	}
}

// forgetEvents forgets what a watch that has ended has delivered: the next one
// begins with the objects that exist.
func (o *Objects) forgetEvents(object Object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if w := o.watches[object]; w != nil {
		w.version, w.exists = "", false
	}
}

// notify notifies all subscribers who have not seen this version of the object, and
// ends their subscriptions.
func (o *Objects) notify(object Object, version string, exists bool) {
	for _, notify := range o.removeOutdated(object, version, exists) {
		notify()
	}
}

func (o *Objects) removeOutdated(object Object, version string, exists bool) (notifies []func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w := o.watches[object]
	if w == nil {
		return nil
	}
	w.exists = exists
	if w.version == "" || isNewer(version, w.version) {
		w.version = version
	}
	for subscriber, s := range w.subscribers {
		if w.isOutdated(s) {
			notifies = append(notifies, s.notify)
			o.remove(subscriber)
		}
	}
	return notifies
}
