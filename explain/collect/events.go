package collect

import (
	"cmp"
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
)

// maxInvolved is for how many objects the events are read. Each costs the API server a look at all events of a namespace.
const maxInvolved = 32

// readEvents reads the events of the objects that were read one by one.
func (r *reader) readEvents(ctx context.Context) {
	r.mu.Lock()
	objects := slices.SortedFunc(maps.Keys(r.involved), r.nearest)
	r.mu.Unlock()
	if len(objects) > maxInvolved {
		r.note(event, "", "there are too many objects to read the events of all")
		objects = objects[:maxInvolved]
	}
	var each []func()
	for _, object := range objects {
		each = append(each, func() { r.readEventsOf(ctx, object) })
	}
	together(each...)
}

// nearest orders objects: the subject, then claims, volumes and snapshots, then the others.
func (r *reader) nearest(x, y involved) int {
	rank := func(o involved) int {
		if o.kind == r.subject.Kind && o.namespace == r.subject.Namespace && o.name == r.subject.Name {
			return -1
		}
		return slices.Index([]string{Claim, Volume, snapshot, VolumeAttachment, Node, Pod, csiDriver}, o.kind)
	}
	return cmp.Or(cmp.Compare(rank(x), rank(y)), cmp.Compare(x.namespace, y.namespace), cmp.Compare(x.name, y.name))
}

// readEventsOf reads the events of one object. Those of an earlier one of the same name are left out.
func (r *reader) readEventsOf(ctx context.Context, object involved) {
	namespace := cmp.Or(object.namespace, metav1.NamespaceDefault)
	options := everything
	options.FieldSelector = fields.Set{"involvedObject.kind": object.kind, "involvedObject.name": object.name}.String()
	isItsOwn := func(e *corev1.Event) bool {
		of, uid := e.InvolvedObject, e.InvolvedObject.UID
		return of.Kind == object.kind && of.Name == object.name &&
			(uid == object.uid || uid == "" || uid == types.UID(object.name)) // as the kubelet writes those of Nodes
	}
	listNoted(ctx, r, event, namespace, options, r.Kube.CoreV1().Events(namespace).List, isItsOwn, &r.events)
}
