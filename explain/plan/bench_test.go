package plan

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/diskdriver"
	"github.com/topodisk/topodisk/explain"
)

// largeCluster has nodes in three zones, and as many claims with a volume and a Pod each.
func largeCluster(nodes, pods int) *Facts {
	f := &Facts{Facts: explain.Facts{Driver: diskdriver.DefaultName}}
	room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourcePods: resource.MustParse("110")}
	zone := func(i int) string { return "cn-hangzhou-" + string(rune('g'+i%3)) }
	for i := range nodes {
		f.Nodes = append(f.Nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i), Labels: map[string]string{corev1.LabelTopologyZone: zone(i)}},
			Status: corev1.NodeStatus{Allocatable: room}})
	}
	owner := []metav1.OwnerReference{{Kind: "StatefulSet", Name: "web", Controller: new(true)}}
	for i := range pods {
		name := fmt.Sprint("x", i)
		f.Volumes = append(f.Volumes, oldVolume(name, "d-1", func(v *corev1.PersistentVolume) {
			v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: name}
			v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0] = corev1.NodeSelectorRequirement{
				Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{zone(i % nodes)}}
		}))
		f.Claims = append(f.Claims, corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: name}})
		f.Pods = append(f.Pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, OwnerReferences: owner}, Spec: corev1.PodSpec{NodeName: fmt.Sprint("n", i%nodes),
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}}})
	}
	return f
}

func BenchmarkDrain(b *testing.B) {
	f := largeCluster(5000, 20000)
	for b.Loop() {
		p, err := Drain(f, "cn-hangzhou-g")
		if err != nil || p.Count(Waits) < 13000 {
			b.Fatal(err, p.Summary)
		}
	}
}

func BenchmarkSoldOut(b *testing.B) {
	f := largeCluster(5000, 20000)
	f.Classes = []storagev1.StorageClass{oldClass("essd", diskdriver.DefaultName, map[string]string{"type": "cloud_essd"})}
	f.Classes[0].VolumeBindingMode = new(storagev1.VolumeBindingWaitForFirstConsumer)
	for i := range 1000 {
		f.Claims[i].Spec = corev1.PersistentVolumeClaimSpec{StorageClassName: new("essd")}
	}
	for b.Loop() {
		p, err := SoldOut(f, "cn-hangzhou-g", "cloud_essd")
		if err != nil || p.Count(Elsewhere) != 1001 {
			b.Fatal(err, p.Summary)
		}
	}
}
