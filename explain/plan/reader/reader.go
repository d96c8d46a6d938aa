// Package reader reads the Facts of package plan from a cluster, with only get and list.
package reader

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/topodisk/topodisk/explain"
	"github.com/topodisk/topodisk/explain/plan"
)

// pageSize is how many objects are asked for at a time.
const pageSize = 500

// Clients are what a cluster is read with. Kinds is for the snapshots' kinds, which client-go has no types of.
type Clients struct {
	Objects kubernetes.Interface
	Kinds   dynamic.Interface
}

// Read returns what a plan of the kind needs of the cluster. What may not be read is Unread in the Facts; any other error of the API
// server is returned.
func Read(ctx context.Context, c Clients, driver string, kind plan.Kind, now time.Time) (*plan.Facts, error) {
	r := &reading{facts: &plan.Facts{Facts: explain.Facts{At: now, Driver: driver}}}
	f, core, storage := r.facts, c.Objects.CoreV1(), c.Objects.StorageV1()
	tasks := []task{
		list(r, "Node", core.Nodes().List, keep(&f.Nodes)),
		list(r, "StorageClass", storage.StorageClasses().List, keep(&f.Classes)),
		list(r, "CSIDriver", storage.CSIDrivers().List, keep(&f.Drivers)),
		list(r, "PersistentVolume", core.PersistentVolumes().List, keep(&f.Volumes)),
	}
	switch kind {
	case plan.KindInstall, plan.KindTakeover:
		apps := c.Objects.AppsV1()
		tasks = append(tasks,
			r.version(c.Objects.Discovery()),
			list(r, "Deployment", apps.Deployments("").List, func(o *appsv1.Deployment) {
				r.workload("Deployment", o.ObjectMeta, o.Spec.Replicas, o.Spec.Template.Spec)
			}),
			list(r, "DaemonSet", apps.DaemonSets("").List, func(o *appsv1.DaemonSet) { r.workload("DaemonSet", o.ObjectMeta, nil, o.Spec.Template.Spec) }),
			list(r, "StatefulSet", apps.StatefulSets("").List, func(o *appsv1.StatefulSet) {
				r.workload("StatefulSet", o.ObjectMeta, o.Spec.Replicas, o.Spec.Template.Spec)
			}),
			list(r, "VolumeAttributesClass", storage.VolumeAttributesClasses().List, keep(&f.Attributes)),
			r.snapshotClasses(c.Kinds, "VolumeSnapshotClass", "snapshot.storage.k8s.io", "volumesnapshotclasses"),
			r.snapshotClasses(c.Kinds, "VolumeGroupSnapshotClass", "groupsnapshot.storage.k8s.io", "volumegroupsnapshotclasses"),
			list(r, "VolumeAttachment", storage.VolumeAttachments().List, keep(&f.Attachments)),
			list(r, "CSINode", storage.CSINodes().List, keep(&f.CSINodes)),
			list(r, "Lease", c.Objects.CoordinationV1().Leases("").List, r.lease))
	case plan.KindDrain, plan.KindSoldOut:
		tasks = append(tasks,
			list(r, "PersistentVolumeClaim", core.PersistentVolumeClaims("").List, keep(&f.Claims)),
			list(r, "Pod", core.Pods("").List, r.pod),
			list(r, "CSIStorageCapacity", storage.CSIStorageCapacities("").List, keep(&f.Capacities)))
	}
	if err := r.all(ctx, tasks); err != nil {
		return nil, err
	}
	r.sort()
	return f, nil
}

// task reads the objects of one kind.
type task func(context.Context) error

// reading fills in Facts from several goroutines. Workloads, SnapshotClasses and Unread have several writers; every other field has one.
type reading struct {
	mu    sync.Mutex
	facts *plan.Facts
}

// all runs the tasks at the same time, and returns the first error.
func (r *reading) all(ctx context.Context, tasks []task) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, t := range tasks {
		group.Go(func() error { return t(ctx) })
	}
	return group.Wait()
}

// sort makes the order of what several goroutines wrote the same in every run.
func (r *reading) sort() {
	f := r.facts
	slices.SortFunc(f.Unread, func(a, b explain.Unread) int { return strings.Compare(a.Kind, b.Kind) })
	slices.SortFunc(f.Workloads, func(a, b plan.Workload) int {
		return cmp.Or(-strings.Compare(a.Kind, b.Kind), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	slices.SortFunc(f.SnapshotClasses, func(a, b plan.SnapshotClass) int {
		return cmp.Or(-strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	})
}

// pageable is a list of objects as client-go returns it.
type pageable interface {
	runtime.Object
	GetContinue() string
}

// list reads all pages of a kind and hands each object to take. What the server doesn't know has no objects; what may not be read is
// Unread.
func list[L pageable, O any](r *reading, kind string, page func(context.Context, metav1.ListOptions) (L, error), take func(*O)) task {
	return func(ctx context.Context) error {
		for options := (metav1.ListOptions{Limit: pageSize}); ; {
			objects, err := page(ctx, options)
			switch {
			case apierrors.IsNotFound(err):
				return nil
			case apierrors.IsForbidden(err):
				r.unread(kind, err)
				return nil
			case err != nil:
				return fmt.Errorf("list objects of kind %s: %w", kind, err)
			}
			err = meta.EachListItem(objects, func(o runtime.Object) error {
				object, ok := any(o).(*O)
				if !ok {
					return fmt.Errorf("list objects of kind %s: the API server returned a %T", kind, o)
				}
				take(object)
				return nil
			})
			if options.Continue = objects.GetContinue(); options.Continue == "" || err != nil {
				return err
			}
		}
	}
}

func (r *reading) unread(kind string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.facts.Unread = append(r.facts.Unread, explain.Unread{Kind: kind, Reason: err.Error()})
}

// keep appends objects to a field of the Facts, without their managed fields.
func keep[O any, P interface {
	*O
	metav1.Object
}](to *[]O) func(*O) {
	return func(o *O) {
		P(o).SetManagedFields(nil)
		*to = append(*to, *o)
	}
}

func (r *reading) version(from discovery.ServerVersionInterface) task {
	return func(context.Context) error {
		version, err := from.ServerVersion()
		if err != nil {
			return fmt.Errorf("read the API server's version: %w", err)
		}
		r.facts.Version = version.GitVersion
		return nil
	}
}

// lease leaves out those by which nodes say that they live.
func (r *reading) lease(o *coordinationv1.Lease) {
	if o.Namespace != corev1.NamespaceNodeLease {
		keep(&r.facts.Leases)(o)
	}
}

func (r *reading) pod(o *corev1.Pod) {
	withoutValues(&o.Spec)
	keep(&r.facts.Pods)(o)
}

// workload adds a workload, of whichever kind.
func (r *reading) workload(kind string, object metav1.ObjectMeta, replicas *int32, pod corev1.PodSpec) {
	object.ManagedFields = nil
	withoutValues(&pod)
	w := plan.Workload{Kind: kind, ObjectMeta: object, Pod: pod}
	if replicas != nil {
		w.Replicas = *replicas
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.facts.Workloads = append(r.facts.Workloads, w)
}

// withoutValues takes the values out of environment variables, which may be secrets, but for those of plan.KeptEnv.
func withoutValues(pod *corev1.PodSpec) {
	for _, containers := range [][]corev1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			for j := range containers[i].Env {
				if e := &containers[i].Env[j]; !slices.Contains(plan.KeptEnv, e.Name) {
					e.Value = ""
				}
			}
		}
	}
}

func (r *reading) snapshotClasses(from dynamic.Interface, kind, group, resource string) task {
	classes := from.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource})
	page := func(ctx context.Context, o metav1.ListOptions) (*unstructured.UnstructuredList, error) {
		return classes.List(ctx, o)
	}
	return list(r, kind, page, func(o *unstructured.Unstructured) {
		c := snapshotClass(kind, o)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.facts.SnapshotClasses = append(r.facts.SnapshotClasses, c)
	})
}

func snapshotClass(kind string, o *unstructured.Unstructured) plan.SnapshotClass {
	c := plan.SnapshotClass{Kind: kind, ObjectMeta: metav1.ObjectMeta{Name: o.GetName(), Labels: o.GetLabels(), Annotations: o.GetAnnotations()}}
	c.Driver, _, _ = unstructured.NestedString(o.Object, "driver")
	parameters, _, err := unstructured.NestedStringMap(o.Object, "parameters")
	if err != nil {
		c.Malformed = err.Error()
	}
	c.Parameters = parameters
	return c
}
