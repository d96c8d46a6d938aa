package reader

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/topodisk/topodisk/diskdriver"
	"github.com/topodisk/topodisk/explain/lists"
	"github.com/topodisk/topodisk/explain/plan"
)

const secret = "hidden-in-the-environment"

// template is a Pod of a workload with a secret in its environment.
func template() corev1.PodTemplateSpec {
	env := []corev1.EnvVar{{Name: "ACCESS_KEY_SECRET", Value: secret}, {Name: "CLUSTER_ID", Value: "c0123"}}
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "init", Env: slices.Clone(env)}}, Containers: []corev1.Container{{Name: "c", Env: env}},
	}}
}

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: "kube-system", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "somebody"}}}
}

func unnamespaced(name string) metav1.ObjectMeta {
	m := named(name)
	m.Namespace = ""
	return m
}

// clients are those of a cluster that has one object of each kind.
func clients() (Clients, *fake.Clientset) {
	objects := fake.NewClientset(
		&corev1.Node{ObjectMeta: unnamespaced("n")}, &corev1.PersistentVolume{ObjectMeta: unnamespaced("v")}, &corev1.PersistentVolumeClaim{ObjectMeta: named("c")},
		&corev1.Pod{ObjectMeta: named("p"), Spec: template().Spec},
		&storagev1.StorageClass{ObjectMeta: unnamespaced("s")}, &storagev1.CSIDriver{ObjectMeta: unnamespaced("d")}, &storagev1.CSINode{ObjectMeta: unnamespaced("n")},
		&storagev1.VolumeAttributesClass{ObjectMeta: unnamespaced("a")}, &storagev1.VolumeAttachment{ObjectMeta: unnamespaced("a")}, &storagev1.CSIStorageCapacity{ObjectMeta: named("c")},
		&coordinationv1.Lease{ObjectMeta: named("l")}, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "n"}},
		&appsv1.Deployment{ObjectMeta: named("w"), Spec: appsv1.DeploymentSpec{Replicas: new(int32(3)), Template: template()}},
		&appsv1.DaemonSet{ObjectMeta: named("w"), Spec: appsv1.DaemonSetSpec{Template: template()}},
		&appsv1.StatefulSet{ObjectMeta: named("w"), Spec: appsv1.StatefulSetSpec{Template: template()}},
	)
	objects.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &version.Info{GitVersion: "v1.37.2"}
	kinds := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshotclasses"}:           "VolumeSnapshotClassList",
		{Group: "groupsnapshot.storage.k8s.io", Version: "v1", Resource: "volumegroupsnapshotclasses"}: "VolumeGroupSnapshotClassList",
	}, snapshotClassObject("VolumeSnapshotClass", map[string]any{"retentionDays": "7"}), snapshotClassObject("VolumeGroupSnapshotClass", map[string]any{"retentionDays": int64(7)}))
	return Clients{objects, kinds}, objects
}

func snapshotClassObject(kind string, parameters map[string]any) *unstructured.Unstructured {
	group := map[string]string{"VolumeSnapshotClass": "snapshot.storage.k8s.io/v1", "VolumeGroupSnapshotClass": "groupsnapshot.storage.k8s.io/v1"}[kind]
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group, "kind": kind, "metadata": map[string]any{"name": "s"}, "driver": diskdriver.DefaultName, "parameters": parameters,
	}}
}

func TestReadsWhatEachPlanNeedsAndNoSecret(t *testing.T) {
	for kind, want := range map[plan.Kind]string{
		plan.KindTakeover: "nodes 1 csiNodes 1 classes 1 attributes 1 capacities 0 claims 0 volumes 1 attachments 1 pods 0 leases 1 drivers 1 workloads 3 snapshotClasses 2 v1.37.2",
		plan.KindDrain:    "nodes 1 csiNodes 0 classes 1 attributes 0 capacities 1 claims 1 volumes 1 attachments 0 pods 1 leases 0 drivers 1 workloads 0 snapshotClasses 0 ",
	} {
		c, client := clients()
		f, err := Read(t.Context(), c, diskdriver.DefaultName, kind, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprintf("nodes %d csiNodes %d classes %d attributes %d capacities %d claims %d volumes %d attachments %d pods %d leases %d drivers %d workloads %d snapshotClasses %d %s",
			len(f.Nodes), len(f.CSINodes), len(f.Classes), len(f.Attributes), len(f.Capacities), len(f.Claims), len(f.Volumes), len(f.Attachments), len(f.Pods), len(f.Leases),
			len(f.Drivers), len(f.Workloads), len(f.SnapshotClasses), f.Version)
		if got != want {
			t.Errorf("%s reads %s\nwant %s", kind, got, want)
		}
		text := fmt.Sprintf("%+v", f)
		if strings.Contains(text, secret) || strings.Contains(text, "somebody") {
			t.Errorf("%s keeps secrets or managed fields:\n%s", kind, text)
		}
		if kind == plan.KindTakeover && (strings.Count(text, "c0123") != 6 || f.Workloads[1].Kind != "Deployment" || f.Workloads[1].Replicas != 3 || f.SnapshotClasses[1].Malformed == "") {
			t.Errorf("%s reads\n%s", kind, text)
		}
		for _, action := range client.Actions() {
			if verb := action.GetVerb(); verb != "list" && verb != "get" {
				t.Errorf("%s of %s", verb, action.GetResource().Resource)
			}
		}
	}
}

func TestPagesAreReadToTheirEnd(t *testing.T) {
	c, client := clients()
	client.PrependReactor("list", "persistentvolumes", func(action kubetesting.Action) (bool, runtime.Object, error) {
		options := action.(kubetesting.ListActionImpl).GetListOptions()
		if options.Limit != lists.PageSize {
			return true, nil, fmt.Errorf("limit %d", options.Limit)
		}
		if options.Continue == "" {
			return true, &corev1.PersistentVolumeList{ListMeta: metav1.ListMeta{Continue: "1"}, Items: []corev1.PersistentVolume{{ObjectMeta: unnamespaced("a")}}}, nil
		}
		return true, &corev1.PersistentVolumeList{Items: []corev1.PersistentVolume{{ObjectMeta: unnamespaced("b")}}}, nil
	})
	f, err := Read(t.Context(), c, diskdriver.DefaultName, plan.KindDrain, time.Now())
	if err != nil || len(f.Volumes) != 2 || f.Volumes[0].Name != "a" || f.Volumes[1].Name != "b" {
		t.Errorf("%v %+v", err, f)
	}
}

// A cluster whose group snapshots have no version v1 yet has them in an older one.
func TestOlderGroupSnapshotClassesAreRead(t *testing.T) {
	c, _ := clients()
	class := snapshotClassObject("VolumeGroupSnapshotClass", nil)
	class.SetAPIVersion(lists.GroupSnapshotGroup + "/v1beta1")
	kinds := map[schema.GroupVersionResource]string{{Group: lists.SnapshotGroup, Version: "v1", Resource: "volumesnapshotclasses"}: "VolumeSnapshotClassList"}
	for _, version := range []string{"v1", "v1beta2", "v1beta1"} {
		kinds[schema.GroupVersionResource{Group: lists.GroupSnapshotGroup, Version: version, Resource: "volumegroupsnapshotclasses"}] = "VolumeGroupSnapshotClassList"
	}
	older := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, class)
	older.PrependReactor("list", "volumegroupsnapshotclasses", func(action kubetesting.Action) (bool, runtime.Object, error) {
		of := action.GetResource()
		return of.Version != "v1beta1", nil, apierrors.NewNotFound(of.GroupResource(), "")
	})
	c.Kinds = older
	f, err := Read(t.Context(), c, diskdriver.DefaultName, plan.KindInstall, time.Now())
	if err != nil || len(f.SnapshotClasses) != 1 || f.SnapshotClasses[0].Kind != "VolumeGroupSnapshotClass" || len(f.Unread) > 0 {
		t.Errorf("%v %+v", err, f)
	}
}

func TestWhatMayNotBeReadIsSaid(t *testing.T) {
	c, client := clients()
	client.PrependReactor("list", "daemonsets", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "daemonsets"}, "", errors.New("no"))
	})
	client.PrependReactor("list", "volumeattributesclasses", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewNotFound(schema.GroupResource{}, "")
	})
	f, err := Read(t.Context(), c, diskdriver.DefaultName, plan.KindInstall, time.Now())
	if err != nil || len(f.Unread) != 1 || f.Unread[0].Kind != "DaemonSet" || !strings.Contains(f.Unread[0].Reason, "forbidden") || len(f.Attributes) > 0 || len(f.Workloads) != 2 {
		t.Errorf("%v %+v", err, f)
	}
	client.PrependReactor("list", "nodes", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("connection refused")
	})
	if _, err := Read(t.Context(), c, diskdriver.DefaultName, plan.KindInstall, time.Now()); err == nil || err.Error() != "list objects of kind Node: connection refused" {
		t.Errorf("error %v", err)
	}
}
