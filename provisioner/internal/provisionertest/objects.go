// Package provisionertest has what the tests of provisioner and of the packages
// below it share.
package provisionertest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

const (
	// DriverName is the driver of all objects.
	DriverName = "diskplugin.csi.alibabacloud.com"
	// GiB is a number of bytes.
	GiB = 1 << 30

	snapshotGroup = "snapshot.storage.k8s.io"
)

var (
	snapshots = schema.GroupVersionResource{Group: snapshotGroup, Version: "v1", Resource: "volumesnapshots"}
	contents  = schema.GroupVersionResource{Group: snapshotGroup, Version: "v1", Resource: "volumesnapshotcontents"}
)

// Claim returns claim shop/data: 20Gi of class essd on node-1.
func Claim(changes ...func(*v1.PersistentVolumeClaim)) *v1.PersistentVolumeClaim {
	claim := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: "data", Namespace: "shop", UID: "0f1e", ResourceVersion: "7",
			Annotations: map[string]string{
				"volume.kubernetes.io/storage-provisioner": DriverName, "volume.kubernetes.io/selected-node": "node-1", "team": "blue",
			},
		},
		Spec: v1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To("essd"),
			AccessModes:      []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			VolumeMode:       ptr.To(v1.PersistentVolumeFilesystem),
			Resources:        v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("20Gi")}},
		},
	}
	for _, change := range changes {
		change(claim)
	}
	return claim
}

// NumberedClaim returns the nth of many claims.
func NumberedClaim(n int, size string) *v1.PersistentVolumeClaim {
	return Claim(func(c *v1.PersistentVolumeClaim) {
		c.Name, c.UID = fmt.Sprint("data-", n), types.UID(fmt.Sprint("uid-", n))
		c.Spec.Resources.Requests[v1.ResourceStorage] = resource.MustParse(size)
	})
}

// Class returns class essd with the parameters.
func Class(parameters map[string]string) *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "essd"}, Provisioner: DriverName, Parameters: parameters,
		ReclaimPolicy: ptr.To(v1.PersistentVolumeReclaimDelete), MountOptions: []string{"noatime"},
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}
}

// Volume returns the Released PersistentVolume of claim shop/data for a disk.
func Volume(id string, changes ...func(*v1.PersistentVolume)) *v1.PersistentVolume {
	pv := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: id, UID: types.UID("uid-" + id), Finalizers: []string{"kubernetes.io/pv-protection", "external-provisioner.volume.kubernetes.io/finalizer"},
			Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": DriverName},
		},
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimDelete,
			ClaimRef:                      &v1.ObjectReference{Namespace: "shop", Name: "data", UID: "0f1e"},
			PersistentVolumeSource:        v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: DriverName, VolumeHandle: id}},
		},
		Status: v1.PersistentVolumeStatus{Phase: v1.VolumeReleased},
	}
	for _, change := range changes {
		change(pv)
	}
	return pv
}

// FromSnapshot makes a claim one that is filled from VolumeSnapshot src of its namespace.
func FromSnapshot(c *v1.PersistentVolumeClaim) {
	c.Spec.DataSource = &v1.TypedLocalObjectReference{APIGroup: ptr.To(snapshotGroup), Kind: "VolumeSnapshot", Name: "src"}
}

// Snapshot returns VolumeSnapshot src, which is ready, and its VolumeSnapshotContent
// with the handle s-1.
func Snapshot(namespace string) (snapshot, content *unstructured.Unstructured) {
	snapshot = &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": snapshotGroup + "/v1", "kind": "VolumeSnapshot",
		"metadata": map[string]any{"name": "src", "namespace": namespace, "uid": "snap-uid", "resourceVersion": "5"},
		"status":   map[string]any{"boundVolumeSnapshotContentName": "content", "readyToUse": true, "restoreSize": "20Gi"},
	}}
	content = &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": snapshotGroup + "/v1", "kind": "VolumeSnapshotContent",
		"metadata": map[string]any{"name": "content", "resourceVersion": "6"},
		"spec": map[string]any{
			"driver": DriverName, "sourceVolumeMode": "Filesystem",
			"volumeSnapshotRef": map[string]any{"name": "src", "namespace": namespace, "uid": "snap-uid"},
		},
		"status": map[string]any{"snapshotHandle": "s-1"},
	}}
	return snapshot, content
}

// AddSnapshot has an API server show what Snapshot returns, after a change if one is given.
func AddSnapshot(t testing.TB, api *dynamicfake.FakeDynamicClient, namespace string, change func(snapshot, content *unstructured.Unstructured)) {
	t.Helper()
	snapshot, content := Snapshot(namespace)
	if change != nil {
		change(snapshot, content)
	}
	Must(t, api.Tracker().Create(snapshots, snapshot, namespace))
	Must(t, api.Tracker().Create(contents, content, ""))
}

// IsProtected says whether VolumeSnapshot shop/src has the finalizer of sources.
func IsProtected(t testing.TB, api *metadatafake.FakeMetadataClient) bool {
	t.Helper()
	snapshot, err := api.Resource(snapshots).Namespace("shop").Get(t.Context(), "src", metav1.GetOptions{})
	Must(t, err)
	return slices.Contains(snapshot.Finalizers, "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection")
}

// Metadata returns the metadata of object src, as the client of MetadataClient serves it.
func Metadata(apiVersion, kind, namespace string, finalizers ...string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "src", ResourceVersion: "5", UID: "src-uid",
			Finalizers: append([]string{"other"}, finalizers...)},
	}
}

// SnapshotMetadata returns the metadata of VolumeSnapshot src.
func SnapshotMetadata(namespace string, finalizers ...string) *metav1.PartialObjectMetadata {
	return Metadata(snapshotGroup+"/v1", "VolumeSnapshot", namespace, finalizers...)
}

// MetadataClient returns a client of the objects.
func MetadataClient(objects ...runtime.Object) *metadatafake.FakeMetadataClient {
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		panic(err)
	}
	return metadatafake.NewSimpleMetadataClient(scheme, objects...)
}

// DynamicClient returns a client of no snapshots and no grants.
func DynamicClient() *dynamicfake.FakeDynamicClient {
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		snapshots: "VolumeSnapshotList",
		contents:  "VolumeSnapshotContentList",
		{Group: "gateway.networking.k8s.io", Version: "v1beta1", Resource: "referencegrants"}: "ReferenceGrantList",
	})
}

// ConfigMapMetadata returns a client of the metadata of an API server's ConfigMaps, whose versions are counted from now on: client-go's fake
// gives none.
func ConfigMapMetadata(api *fake.Clientset) *metadatafake.FakeMetadataClient {
	versions := 1
	api.PrependReactor("*", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if write, ok := action.(clienttesting.CreateAction); ok { // an update, too
			versions++
			write.GetObject().(*v1.ConfigMap).ResourceVersion = strconv.Itoa(versions)
		}
		return false, nil, nil
	})
	objects := metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme())
	objects.PrependReactor("get", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		name := action.(clienttesting.GetAction).GetName()
		configMap, err := api.CoreV1().ConfigMaps(action.GetNamespace()).Get(context.Background(), name, metav1.GetOptions{})
		return true, &metav1.PartialObjectMetadata{ObjectMeta: configMap.ObjectMeta}, err
	})
	return objects
}
