package watch

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// OnEvent returns a handler that calls changed with objects that exist and deleted with
// the last known state of objects that don't. An object that was deleted and created
// again while the watch was down is one update to the informer, and both to the handler.
func OnEvent[T metav1.Object](changed, deleted func(T)) cache.ResourceEventHandler {
	ignore := func(T) {}
	if changed == nil {
		changed = ignore
	}
	if deleted == nil {
		deleted = ignore
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { changed(object.(T)) },
		UpdateFunc: func(before, object any) {
			old, now := before.(T), object.(T)
			if old.GetUID() != now.GetUID() {
				deleted(old)
			}
			changed(now)
		},
		DeleteFunc: func(object any) { deleted(lastKnown[T](object)) },
	}
}

// OnUpdate returns a handler that calls changed with an object's state before and now,
// the former zero for a new object, and deleted with its last known state.
func OnUpdate[T any](changed func(old, now T), deleted func(T)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { var none T; changed(none, object.(T)) },
		UpdateFunc: func(old, now any) { changed(old.(T), now.(T)) },
		DeleteFunc: func(object any) { deleted(lastKnown[T](object)) },
	}
}

// lastKnown returns the last known state of a deleted object.
func lastKnown[T any](object any) T {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	return object.(T)
}
