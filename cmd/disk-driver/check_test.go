package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/topodisk/topodisk/diskdriver"
)

func oldClass(name, driver string, parameters map[string]string) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: driver, Parameters: parameters}
}

// oldVolume is a PersistentVolume as the driver before topodisk made it.
func oldVolume(name, handle string, change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: diskdriver.DefaultName, VolumeHandle: handle, FSType: "ext4",
			VolumeAttributes: map[string]string{"type": "cloud_essd", "storage.kubernetes.io/csiProvisionerIdentity": "1-2-x", "sysConfig": "ignored of old volumes"},
		}},
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "topology.diskplugin.csi.alibabacloud.com/zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"cn-hangzhou-h"}}},
		}}}},
	}}
	if change != nil {
		change(v)
	}
	return v
}

func snapshotClass(kind, name string, parameters map[string]any) *unstructured.Unstructured {
	group := map[string]string{"VolumeSnapshotClass": "snapshot.storage.k8s.io/v1", "VolumeGroupSnapshotClass": "groupsnapshot.storage.k8s.io/v1"}[kind]
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group, "kind": kind, "metadata": map[string]any{"name": name}, "driver": diskdriver.DefaultName, "deletionPolicy": "Delete", "parameters": parameters,
	}}
}

func TestCheckNamesWhatWouldBeRefusedAndNothingElse(t *testing.T) {
	client := fake.NewClientset(
		oldClass("good", diskdriver.DefaultName, map[string]string{
			"type": "cloud_essd,cloud_auto", "fsType": "ext4", "csi.storage.k8s.io/provisioner-secret-name": "s", "csi.storage.k8s.io/secret-namespace": "n", "topodisk.io/strict-topology": "true",
		}),
		oldClass("misspelt", diskdriver.DefaultName, map[string]string{"type": "cloud_esd"}),
		oldClass("truth", diskdriver.DefaultName, map[string]string{"encrypted": "perhaps"}),
		oldClass("cache", diskdriver.DefaultName, map[string]string{"dataCacheSize": "10Gi"}),
		oldClass("of-another", "nas.example.com", map[string]string{"type": "anything"}),
		&storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, DriverName: diskdriver.DefaultName, Parameters: map[string]string{"performanceLevel": "PL9"}},
		oldVolume("d-good", "d-good", nil),
		oldVolume("d-anywhere", "d-anywhere", func(v *corev1.PersistentVolume) { v.Spec.NodeAffinity = nil }),
		oldVolume("d-tied", "d-tied", func(v *corev1.PersistentVolume) {
			v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Key = "alibabacloud.com/ecs-instance-id"
		}),
		oldVolume("no-disk", "nas-1", nil),
		oldVolume("d-ntfs", "d-ntfs", func(v *corev1.PersistentVolume) { v.Spec.CSI.FSType = "ntfs" }),
		oldVolume("d-shared", "d-shared", func(v *corev1.PersistentVolume) {
			v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
		}),
	)
	kinds := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshotclasses"}:           "VolumeSnapshotClassList",
		{Group: "groupsnapshot.storage.k8s.io", Version: "v1", Resource: "volumegroupsnapshotclasses"}: "VolumeGroupSnapshotClassList",
	}, snapshotClass("VolumeSnapshotClass", "week", map[string]any{"retentionDays": "7"}), snapshotClass("VolumeSnapshotClass", "ever", map[string]any{"retentionDays": "0"}),
		snapshotClass("VolumeGroupSnapshotClass", "group", map[string]any{"retentionDays": "7"}))
	var out strings.Builder
	c := &check{driver: diskdriver.DefaultName, client: client, kinds: kinds, out: &out}
	refused, err := c.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"REFUSED  StorageClass misspelt: ", `"cloud_esd"`, "REFUSED  StorageClass truth: ", "encrypted", "REFUSED  StorageClass cache: ", "dataCacheSize",
		"REFUSED  VolumeAttributesClass fast: ", "REFUSED  VolumeSnapshotClass ever: ", "REFUSED  VolumeGroupSnapshotClass group: ",
		"REFUSED  PersistentVolume no-disk: ", "REFUSED  PersistentVolume d-ntfs: ", "REFUSED  PersistentVolume d-shared: ",
		"note     PersistentVolume d-good: node affinity by topology.diskplugin.csi.alibabacloud.com/zone",
		"note     PersistentVolume d-anywhere: no node affinity", "note     PersistentVolume d-tied: node affinity by alibabacloud.com/ecs-instance-id",
		"check: 14 classes and volumes of diskplugin.csi.alibabacloud.com read, 9 would be refused",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("not printed: %s", want)
		}
	}
	if refused != 9 || strings.Contains(out.String(), "StorageClass good") || strings.Contains(out.String(), "of-another") || strings.Contains(out.String(), "Class week") {
		t.Errorf("%d refused", refused)
	}
	if t.Failed() {
		t.Log(out.String())
	}
}
