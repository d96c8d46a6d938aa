package provisioner

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"
)

// What claims and deletions may have to wait for, besides what is cached.
var (
	secretsResource    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	claimsResource     = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}
	snapshotsResource  = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshots"}
	contentsResource   = schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshotcontents"}
	grantsResource     = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1beta1", Resource: "referencegrants"}
	attributesResource = schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "volumeattributesclasses"}
)

// object names an object of the API; without a name, all of a namespace.
type object struct {
	resource        schema.GroupVersionResource
	namespace, name string
}

// nouns are what objects are called in errors.
var nouns = map[schema.GroupVersionResource]string{
	secretsResource: "secret", claimsResource: "claim", snapshotsResource: "VolumeSnapshot", contentsResource: "VolumeSnapshotContent",
	grantsResource: "ReferenceGrant", attributesResource: "VolumeAttributesClass",
}

// String returns the object as it stands in errors and logs.
func (o object) String() string {
	if o.namespace == "" {
		return nouns[o.resource] + " " + o.name
	}
	return nouns[o.resource] + " " + o.namespace + "/" + o.name
}

// wanting is an error that a change of one object may end.
type wanting struct {
	error
	object  object
	version string // of the object, or of the list of all, when it was found wanting; empty if it wasn't there
}

// Unwrap returns the error without what it waits for.
func (w *wanting) Unwrap() error { return w.error }

// mostWatches bounds the objects that are watched at the same time. Who waits
// for one more is tried again with growing pauses only.
const mostWatches = 256

// awaiting wakes claims and deletions when what they wait for changes. Each
// such object is watched alone and by its metadata, for as long as someone
// waits for it: so the right to watch what a class names is enough, nobody's
// Secrets are held in memory, and nothing is watched while nothing is amiss.
type awaiting struct {
	objects metadata.Interface // nil: nothing is watched

	mu      sync.Mutex
	watched map[object]*watched
	waits   map[string]object // by waiter
	stopped bool
}

type watched struct {
	waiters map[string]waiter
	cancel  context.CancelFunc

	version string // the newest that the watch has shown; empty before it has shown any
	there   bool   // as the watch has shown last
}

// hasMore says whether the watch has shown what the waiter has not seen.
func (w *watched) hasMore(than waiter) bool {
	if than.version == "" {
		return w.there
	}
	return w.version != "" && isNewer(w.version, than.version)
}

// isNewer says whether a version is newer than another one, as far as they can be compared.
func isNewer(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order > 0 || err != nil && version != than
}

type waiter struct {
	version string
	wake    func()
}

func newAwaiting(objects metadata.Interface) *awaiting {
	return &awaiting{objects: objects, watched: map[object]*watched{}, waits: map[string]object{}}
}

// heed has the waiter woken when what err wants has changed; an err that wants
// nothing ends an earlier wait.
func (a *awaiting) heed(who string, err error, wake func()) {
	var want *wanting
	if !errors.As(err, &want) {
		a.forget(who)
		return
	}
	if a.enter(who, want.object, waiter{version: want.version, wake: wake}) {
		return
	}
	wake()
}

// enter files a waiter, unless what it waits for has happened already.
func (a *awaiting) enter(who string, o object, waits waiter) (entered bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waits[who] != o {
		a.leave(who)
	}
	w := a.watched[o]
	if w == nil {
		if a.objects == nil || a.stopped || len(a.watched) >= mostWatches {
			return true
		}
		ctx, cancel := context.WithCancel(context.Background())
		w = &watched{waiters: map[string]waiter{}, cancel: cancel}
		a.watched[o] = w
		go a.watch(ctx, o)
	}
	if w.hasMore(waits) {
		a.leave(who)
		return false
	}
	a.waits[who] = o
	w.waiters[who] = waits
	return true
}

// forget ends a wait.
func (a *awaiting) forget(who string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.leave(who)
}

// leave takes a waiter out, and ends a watch that nobody needs. a.mu is held.
func (a *awaiting) leave(who string) {
	o, ok := a.waits[who]
	if !ok {
		return
	}
	delete(a.waits, who)
	w := a.watched[o]
	delete(w.waiters, who)
	if len(w.waiters) == 0 {
		w.cancel()
		delete(a.watched, o)
	}
}

// stop ends every watch, and lets none begin.
func (a *awaiting) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stopped = true
	for who := range a.waits {
		a.leave(who)
	}
}

// watch follows one object until ctx ends. A watch begins with what is there,
// so nothing that happened before it is missed.
func (a *awaiting) watch(ctx context.Context, o object) {
	options := metav1.ListOptions{}
	if o.name != "" {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, o.name).String()
	}
	for pause := time.Second; ctx.Err() == nil; pause = min(2*pause, time.Minute) {
		events, err := a.objects.Resource(o.resource).Namespace(o.namespace).Watch(ctx, options)
		if err != nil {
			klog.V(2).ErrorS(err, "What is waited for can't be watched", "object", o.String())
		} else if a.follow(ctx, o, events) {
			pause = time.Second
		}
		a.forgetShown(o)
		if sleep(ctx, pause) != nil {
			return
		}
	}
}

// follow hears a watch to its end, and says whether it told anything.
func (a *awaiting) follow(ctx context.Context, o object, events watch.Interface) (heard bool) {
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return heard
		case event, open := <-events.ResultChan():
			if !open || event.Type == watch.Error {
				return heard
			}
			if seen, err := meta.Accessor(event.Object); err == nil && (o.name == "" || seen.GetName() == o.name) {
				heard = true
				a.changed(o, seen.GetResourceVersion(), event.Type != watch.Deleted)
			}
		}
	}
}

// forgetShown forgets what a watch has shown that has ended: the next one begins
// with what is there.
func (a *awaiting) forgetShown(o object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w := a.watched[o]; w != nil {
		w.version, w.there = "", false
	}
}

// changed wakes all who have not seen this version of the object, which is there
// or was deleted. Who still wants something of it then waits anew.
func (a *awaiting) changed(o object, version string, there bool) {
	for _, wake := range a.stale(o, version, there) {
		wake()
	}
}

func (a *awaiting) stale(o object, version string, there bool) (wakes []func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.watched[o]
	if w == nil {
		return nil
	}
	w.there = there
	if w.version == "" || isNewer(version, w.version) {
		w.version = version
	}
	for who, waiter := range w.waiters {
		if w.hasMore(waiter) {
			wakes = append(wakes, waiter.wake)
			a.leave(who)
		}
	}
	return wakes
}

// sleep returns nil after d, or the context's error as soon as that has ended.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
