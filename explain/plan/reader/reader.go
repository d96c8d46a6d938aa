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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/topodisk/topodisk/explain"
	"github.com/topodisk/topodisk/explain/lists"
	"github.com/topodisk/topodisk/explain/plan"
)

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
		list(r, "Node", core.Nodes().List, lists.Keep(&f.Nodes)),
		list(r, "StorageClass", storage.StorageClasses().List, lists.Keep(&f.Classes)),
		list(r, "CSIDriver", storage.CSIDrivers().List, lists.Keep(&f.Drivers)),
		list(r, "PersistentVolume", core.PersistentVolumes().List, lists.Keep(&f.Volumes)),
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
			list(r, "VolumeAttributesClass", storage.VolumeAttributesClasses().List, lists.Keep(&f.Attributes)),
			r.snapshotClasses(c.Kinds, "VolumeSnapshotClass", lists.SnapshotGroup, "volumesnapshotclasses"),
			r.snapshotClasses(c.Kinds, "VolumeGroupSnapshotClass", lists.GroupSnapshotGroup, "volumegroupsnapshotclasses"),
			list(r, "VolumeAttachment", storage.VolumeAttachments().List, lists.Keep(&f.Attachments)),
			list(r, "CSINode", storage.CSINodes().List, lists.Keep(&f.CSINodes)),
			list(r, "Lease", c.Objects.CoordinationV1().Leases("").List, r.lease))
	case plan.KindDrain, plan.KindSoldOut:
		tasks = append(tasks,
			list(r, "PersistentVolumeClaim", core.PersistentVolumeClaims("").List, lists.Keep(&f.Claims)),
			list(r, "Pod", core.Pods("").List, r.pod),
			list(r, "CSIStorageCapacity", storage.CSIStorageCapacities("").List, lists.Keep(&f.Capacities)))
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

// list reads all objects of a kind and hands each to take.
func list[L lists.List, O any](r *reading, kind string, page func(context.Context, metav1.ListOptions) (L, error), take func(*O)) task {
	return func(ctx context.Context) error {
		return r.checked(kind, lists.Each(ctx, page, metav1.ListOptions{}, take))
	}
}

// checked returns the error of reading a kind. What the server doesn't know has no objects; what may not be read is Unread.
func (r *reading) checked(kind string, err error) error {
	switch {
	case err == nil || apierrors.IsNotFound(err):
		return nil
	case apierrors.IsForbidden(err):
		r.unread(kind, err)
		return nil
	}
	return fmt.Errorf("list objects of kind %s: %w", kind, err)
}

func (r *reading) unread(kind string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.facts.Unread = append(r.facts.Unread, explain.Unread{Kind: kind, Reason: err.Error()})
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
		lists.Keep(&r.facts.Leases)(o)
	}
}

func (r *reading) pod(o *corev1.Pod) {
	withoutValues(&o.Spec)
	lists.Keep(&r.facts.Pods)(o)
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
	return func(ctx context.Context) error {
		return r.checked(kind, lists.EachOfSnapshots(ctx, from, group, resource, func(o *unstructured.Unstructured) {
			c := snapshotClass(kind, o)
			r.mu.Lock()
			defer r.mu.Unlock()
			r.facts.SnapshotClasses = append(r.facts.SnapshotClasses, c)
		}))
	}
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
