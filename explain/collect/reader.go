package collect

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/explain"
)

const (
	// pageSize is how many objects a page has, unless the API server gives all at once from its cache.
	pageSize = 500
	// maxRequests is how many requests are under way at a time.
	maxRequests = 16
)

// fromCache lists what the API server has in its watch cache, which spares etcd and lags by a moment.
var fromCache = metav1.ListOptions{ResourceVersion: "0", Limit: pageSize}

// reader reads the facts of one subject.
type reader struct {
	Clients
	subject   explain.Ref
	driver    string
	namespace string        // that topodisk runs in; empty: the one that has its Lease
	slots     chan struct{} // one for each request under way

	pods        objects[corev1.Pod]
	claims      objects[corev1.PersistentVolumeClaim]
	volumes     objects[corev1.PersistentVolume]
	nodes       objects[corev1.Node]
	csiNodes    objects[storagev1.CSINode]
	csiDrivers  objects[storagev1.CSIDriver]
	classes     objects[storagev1.StorageClass]
	attributes  objects[storagev1.VolumeAttributesClass]
	capacities  objects[storagev1.CSIStorageCapacity]
	attachments objects[storagev1.VolumeAttachment]
	leases      objects[coordinationv1.Lease]
	events      objects[corev1.Event]

	mu        sync.Mutex
	involved  map[involved]bool // whose events are read
	done      map[string]bool   // of once
	snapshots []explain.Snapshot
	journal   []explain.Request
	unread    map[kindOf]string // why
}

// kindOf is a kind in a namespace, or in all of them.
type kindOf struct{ kind, namespace string }

// involved is an object that may have events. Events of a Node have no UID that counts.
type involved struct {
	kind, namespace, name string
	uid                   types.UID
}

func newReader(clients Clients, subject explain.Ref, driver, namespace string) *reader {
	return &reader{
		Clients: clients, subject: subject, driver: driver, namespace: namespace, slots: make(chan struct{}, maxRequests),
		involved: map[involved]bool{}, done: map[string]bool{}, unread: map[kindOf]string{},
	}
}

// facts returns what was read so far, sorted.
func (r *reader) facts() *explain.Facts {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := &explain.Facts{
		Driver: r.driver, Subject: r.subject,
		Nodes: sorted(&r.nodes), CSINodes: sorted(&r.csiNodes), Classes: sorted(&r.classes), Attributes: sorted(&r.attributes),
		Capacities: sorted(&r.capacities), Claims: sorted(&r.claims), Volumes: sorted(&r.volumes), Attachments: sorted(&r.attachments),
		Pods: sorted(&r.pods), Events: sorted(&r.events), Leases: sorted(&r.leases),
		Snapshots: slices.SortedFunc(slices.Values(r.snapshots), func(x, y explain.Snapshot) int {
			return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
		}),
		Journal: slices.SortedFunc(slices.Values(r.journal), func(x, y explain.Request) int { return cmp.Compare(x.ClaimUID, y.ClaimUID) }),
	}
	for of, reason := range r.unread {
		f.Unread = append(f.Unread, explain.Unread{Kind: of.kind, Namespace: of.namespace, Reason: reason})
	}
	slices.SortFunc(f.Unread, func(x, y explain.Unread) int {
		return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Namespace, y.Namespace))
	})
	if drivers := sorted(&r.csiDrivers); len(drivers) > 0 {
		f.CSIDriver = &drivers[0]
	}
	return f
}

// objects are those of one kind that were read, by namespace and name.
type objects[T any] struct {
	mu    sync.Mutex
	byKey map[string]*T
}

// put adds an object. One that was read by name is newer than one of a list, and takes its place.
func (o *objects[T]) put(namespace, name string, object *T, byName bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byKey == nil {
		o.byKey = map[string]*T{}
	}
	if key := namespace + "/" + name; byName || o.byKey[key] == nil {
		o.byKey[key] = object
	}
}

// of returns the object of a name, nil if there is none.
func (o *objects[T]) of(namespace, name string) *T {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.byKey[namespace+"/"+name]
}

// all returns the objects in no order.
func (o *objects[T]) all() []*T {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Values(o.byKey))
}

func sorted[T any](o *objects[T]) []T {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := make([]T, 0, len(o.byKey))
	for _, key := range slices.Sorted(maps.Keys(o.byKey)) {
		list = append(list, *o.byKey[key])
	}
	return list
}

// together calls functions side by side and returns when all have.
func together(functions ...func()) {
	var all sync.WaitGroup
	for _, f := range functions {
		all.Go(f)
	}
	all.Wait()
}

// once calls a function that several parts of the subject need, the first time that it is asked to.
func (r *reader) once(what string, f func()) {
	r.mu.Lock()
	done := r.done[what]
	r.done[what] = true
	r.mu.Unlock()
	if !done {
		f()
	}
}

// begin waits until another request may be sent, and returns what ends it.
func (r *reader) begin(ctx context.Context) (end func(), err error) {
	select {
	case r.slots <- struct{}{}:
		return func() { <-r.slots }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// involve has the events of an object read.
func (r *reader) involve(kind string, object metav1.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.involved[involved{kind, object.GetNamespace(), object.GetName(), object.GetUID()}] = true
}

// note says that a kind was not read, or not all of it. Of several reasons one is kept, always the same.
func (r *reader) note(kind, namespace, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := kindOf{kind, namespace}
	if before, ok := r.unread[of]; !ok || reason < before {
		r.unread[of] = reason
	}
}

// noteError notes why a kind was not read.
func (r *reader) noteError(kind, namespace string, err error) { r.note(kind, namespace, reasonOf(err)) }

func reasonOf(err error) string {
	if isMissingAPI(err) {
		return fmt.Sprintf("the API server has no such kind: %v", err)
	}
	return err.Error()
}

// isMissingAPI tells a kind that the API server doesn't have from an object that isn't there: the answer is not one of the API's.
func isMissingAPI(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// object is a pointer to an object's struct.
type object[T any] interface {
	*T
	metav1.Object
	runtime.Object
}

// getter is the Get of a typed client.
type getter[T any] func(context.Context, string, metav1.GetOptions) (*T, error)

// read reads an object by name and keeps it.
func read[T any, P object[T]](ctx context.Context, r *reader, to *objects[T], name string, get getter[T]) (*T, error) {
	end, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	found, err := get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	strip(P(found), r.driver)
	to.put(P(found).GetNamespace(), P(found).GetName(), found, true)
	return found, nil
}

// readNamed reads an object that may be absent: it returns nil then, and if it can't be read, which is noted.
func readNamed[T any, P object[T]](ctx context.Context, r *reader, kind, namespace, name string, to *objects[T], get getter[T]) *T {
	if name == "" {
		return nil
	}
	found, err := read[T, P](ctx, r, to, name, get)
	switch {
	case apierrors.IsNotFound(err) && !isMissingAPI(err):
		return nil
	case err != nil:
		r.noteError(kind, namespace, err)
		return nil
	}
	return found
}

// lister is the List of a typed client.
type lister[L runtime.Object] func(context.Context, metav1.ListOptions) (L, error)

// list reads the objects that keep returns true for, nil for all of them.
func list[T any, P object[T], L runtime.Object](ctx context.Context, r *reader, options metav1.ListOptions,
	list lister[L], keep func(*T) bool, to *objects[T]) error {
	for {
		next, err := readPage[T, P](ctx, r, options, list, keep, to)
		if err != nil || next == "" {
			return err
		}
		options.Continue, options.ResourceVersion = next, ""
	}
}

// readPage returns where the next page begins, "" if there is none.
func readPage[T any, P object[T], L runtime.Object](ctx context.Context, r *reader, options metav1.ListOptions,
	list lister[L], keep func(*T) bool, to *objects[T]) (next string, err error) {
	end, err := r.begin(ctx)
	if err != nil {
		return "", err
	}
	page, err := list(ctx, options)
	end()
	if err != nil {
		return "", err
	}
	err = meta.EachListItem(page, func(item runtime.Object) error {
		if found := item.(P); keep == nil || keep(found) {
			strip(found, r.driver)
			to.put(found.GetNamespace(), found.GetName(), found, false)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	about, err := meta.ListAccessor(page)
	if err != nil {
		return "", err
	}
	return about.GetContinue(), nil
}

// listNoted lists a kind of a namespace, or of the cluster, and notes if that fails.
func listNoted[T any, P object[T], L runtime.Object](ctx context.Context, r *reader, kind, namespace string, options metav1.ListOptions,
	from lister[L], keep func(*T) bool, to *objects[T]) {
	if err := list[T, P](ctx, r, options, from, keep, to); err != nil {
		r.noteError(kind, namespace, err)
	}
}

// listEverywhere lists a kind of all namespaces. If that is forbidden it lists one, and notes that the others are missing.
func listEverywhere[T any, P object[T], L runtime.Object](ctx context.Context, r *reader, kind, namespace string, options metav1.ListOptions,
	in func(namespace string) lister[L], keep func(*T) bool, to *objects[T]) {
	err := list[T, P](ctx, r, options, in(metav1.NamespaceAll), keep, to)
	if err == nil {
		return
	}
	if !apierrors.IsForbidden(err) || namespace == "" {
		r.noteError(kind, "", err)
		return
	}
	if list[T, P](ctx, r, options, in(namespace), keep, to) != nil {
		r.noteError(kind, "", err)
		return
	}
	r.note(kind, "", fmt.Sprintf("%s; only namespace %s was read", reasonOf(err), namespace))
}
