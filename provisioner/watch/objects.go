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

	mu      sync.Mutex
	watches map[Object]*objectWatch
	stopped bool
}

// objectWatch is the watch of one object, which ends with its first change.
type objectWatch struct {
	namespace   string            // of the subscriber for whom it was begun
	version     string            // the resourceVersion since which a change counts; empty if the object was absent
	subscribers map[string]func() // what notifies each
	cancel      context.CancelFunc
}

// NewObjects returns an Objects without subscribers. Without a client it never notifies.
func NewObjects(client metadata.Interface) *Objects {
	return &Objects{client: client, watches: map[Object]*objectWatch{}}
}

// SubscribeError subscribes to the object of a NotReadyError in err's chain; with another error, or none, it ends the subscriber's subscription.
// It calls notify once, when the object has changed since it was read; at once if that is known already. A subscriber has one subscription at
// most: a new one replaces the last. The namespace is that of the claim for which it waits.
func (o *Objects) SubscribeError(subscriber, namespace string, err error, notify func()) {
	var notReady *NotReadyError
	if !errors.As(err, &notReady) {
		o.Unsubscribe(subscriber)
		return
	}
	if !o.add(subscriber, namespace, notReady, notify) {
		notify()
	}
}

// add files a subscription, unless the change has happened already: somebody has seen a later version.
func (o *Objects) add(subscriber, namespace string, notReady *NotReadyError, notify func()) (pending bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	object := notReady.Object
	w := o.watches[object]
	o.remove(subscriber, w)
	if w == nil {
		if o.client == nil || o.stopped || !o.hasRoom(namespace) {
			return true
		}
		ctx, cancel := context.WithCancel(context.Background())
		w = &objectWatch{namespace: namespace, version: notReady.ResourceVersion, subscribers: map[string]func(){}, cancel: cancel}
		o.watches[object] = w
		go o.run(ctx, object, w)
	}
	if IsOlder(notReady.ResourceVersion, w.version) {
		o.remove(subscriber, nil)
		return false
	}
	w.subscribers[subscriber] = notify
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
	o.remove(subscriber, nil)
}

// remove ends a subscription, unless it is to the given watch, and each watch with its last subscriber. o.mu is held.
func (o *Objects) remove(subscriber string, except *objectWatch) {
	for object, w := range o.watches {
		if w.subscribers[subscriber] == nil || w == except {
			continue
		}
		if delete(w.subscribers, subscriber); len(w.subscribers) == 0 {
			o.drop(object, w)
		}
	}
}

// drop ends a watch. o.mu is held.
func (o *Objects) drop(object Object, w *objectWatch) {
	w.cancel()
	delete(o.watches, object)
}

// Stop ends every subscription and ignores later ones.
func (o *Objects) Stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopped = true
	for object, w := range o.watches {
		o.drop(object, w)
	}
}

// run watches one object until it changes, and notifies its subscribers then. One of them may have seen the change already: it looks once more.
func (o *Objects) run(ctx context.Context, object Object, w *objectWatch) {
	for pause := time.Second; !o.awaitChange(ctx, object, w.version); pause = min(2*pause, time.Minute) {
		if sleep.For(ctx, pause) != nil {
			return
		}
	}
	for _, notify := range o.end(object, w) {
		notify()
	}
}

// awaitChange watches an object once, and says whether it has changed since the version. A watch begins with the objects that exist, so of the
// changes before it only a deletion is missed: the subscriber finds that out by its own retries.
func (o *Objects) awaitChange(ctx context.Context, object Object, version string) bool {
	options := metav1.ListOptions{}
	if object.Name != "" {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, object.Name).String()
	}
	events, err := o.client.Resource(object.Resource).Namespace(object.Namespace).Watch(ctx, options)
	if err != nil {
		klog.V(2).ErrorS(err, "An object can't be watched", "object", object.String())
		return false
	}
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case event, open := <-events.ResultChan():
			if !open || event.Type == apiwatch.Error {
				return false
			}
			m, err := meta.Accessor(event.Object)
			if err == nil && (object.Name == "" || m.GetName() == object.Name) && isChange(event.Type, m.GetResourceVersion(), version) {
				return true
			}
		}
	}
}

// isChange says whether an event tells something new to who has read the version, or has found no object if that is empty.
func isChange(event apiwatch.EventType, now, version string) bool {
	switch {
	case event == apiwatch.Deleted:
		return version != ""
	case version == "":
		return true
	}
	return IsOlder(version, now)
}

// end ends a watch, and returns what notifies its subscribers: none if they have left it already.
func (o *Objects) end(object Object, w *objectWatch) map[string]func() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.watches[object] != w {
		return nil
	}
	o.drop(object, w)
	return w.subscribers
}

// IsOlder says whether one version of an object is older than another one.
func IsOlder(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}
