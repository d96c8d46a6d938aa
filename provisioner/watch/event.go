package watch

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// OnEvent returns a handler that calls changed with objects that exist and deleted with
// the last known state of objects that don't.
func OnEvent[T metav1.Object](changed, deleted func(T)) cache.ResourceEventHandler {
	if changed == nil {
		changed = func(T) {}
	}
	return OnUpdate(func(_, now T) { changed(now) }, deleted)
}

// OnUpdate returns a handler that calls changed with an object's state before and now,
// the former zero for a new object, and deleted, unless it is nil, with its last known
// state. An object that was deleted and created again while the watch was down is one
// update to the informer, and a deleted and a new one to the handler.
func OnUpdate[T metav1.Object](changed func(old, now T), deleted func(T)) cache.ResourceEventHandler {
	var none T
	if deleted == nil {
		deleted = func(T) {}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { changed(none, object.(T)) },
		UpdateFunc: func(before, object any) {
			old, now := before.(T), object.(T)
			if old.GetUID() != now.GetUID() {
				deleted(old)
				old = none
			}
			changed(old, now)
		},
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
