package plan

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/diskdriver"
	"github.com/topodisk/topodisk/explain"
	"github.com/topodisk/topodisk/topology"
)

// twoZones has a node in each of two zones, and a Pod in the first that asks for one of a node's two CPUs.
func twoZones() *Facts {
	f := &Facts{Facts: explain.Facts{Driver: diskdriver.DefaultName}}
	cpu := func(n string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(n)}
	}
	for _, zone := range []string{"cn-hangzhou-h", "cn-hangzhou-i"} {
		allocatable := cpu("2")
		allocatable[corev1.ResourcePods] = resource.MustParse("10")
		f.Nodes = append(f.Nodes, corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: zone, Labels: map[string]string{topology.WellKnownZoneKey: zone}},
			Status:     corev1.NodeStatus{Allocatable: allocatable}})
	}
	for name, node := range map[string]string{"web": "cn-hangzhou-h", "other": "cn-hangzhou-i"} {
		f.Pods = append(f.Pods, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name,
				OwnerReferences: []metav1.OwnerReference{{Kind: "StatefulSet", Name: name, Controller: new(true)}}},
			Spec: corev1.PodSpec{NodeName: node,
				Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: cpu("1")}}}}})
	}
	return f
}

// addClaim gives the Pods a claim that has no volume yet, of a class that allows the zones by the key.
func addClaim(f *Facts, key string, claim corev1.PersistentVolumeClaim, zones ...string) {
	class := oldClass("essd", diskdriver.DefaultName, nil)
	class.VolumeBindingMode = new(storagev1.VolumeBindingWaitForFirstConsumer)
	class.AllowedTopologies = []corev1.TopologySelectorTerm{{
		MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: key, Values: zones}}}}
	claim.Namespace, claim.Name = "shop", "data"
	f.Classes, f.Claims = append(f.Classes, class), append(f.Claims, claim)
	for i := range f.Pods {
		f.Pods[i].Spec.Volumes = []corev1.Volume{{Name: "data",
			VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	}
}

// annotated is a claim that names its class by the old annotation alone.
func annotated() corev1.PersistentVolumeClaim {
	return corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1.BetaStorageClassAnnotation: "essd"}}}
}

// A Pod of a drained zone waits where kube-scheduler would keep it off the node that is left.
func TestPodsFitAsTheSchedulerHasIt(t *testing.T) {
	named := corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("essd")}}
	for name, test := range map[string]struct {
		change func(*Facts)
		waits  string // part of why the Pod does; empty if it doesn't
	}{
		"as it is": {func(*Facts) {}, ""},
		"a Pod there still has what it had before a resize": {func(f *Facts) {
			for i := range f.Pods {
				if f.Pods[i].Name == "other" {
					f.Pods[i].Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", Resources: &corev1.ResourceRequirements{
						Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")}}}}
				}
			}
		}, "no room"},
		"the node is cordoned and has no taint yet": {func(f *Facts) { f.Nodes[1].Spec.Unschedulable = true }, "marked as unschedulable"},
		"the Pod tolerates a cordon": {func(f *Facts) {
			f.Nodes[1].Spec.Unschedulable = true
			for i := range f.Pods {
				f.Pods[i].Spec.Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists}}
			}
		}, ""},
		"the class allows the zone by the node's label": {func(f *Facts) {
			addClaim(f, topology.WellKnownZoneKey, named, "cn-hangzhou-h", "cn-hangzhou-i")
		}, ""},
		"the class allows the zone by a label the node lacks": {func(f *Facts) {
			f.Nodes[0].Labels[topology.ZoneKey] = "cn-hangzhou-h"
			addClaim(f, topology.ZoneKey, named, "cn-hangzhou-h", "cn-hangzhou-i")
		}, "StorageClass essd of claim data allows no other zone"},
		"the claim names its class by the old annotation": {func(f *Facts) {
			addClaim(f, topology.WellKnownZoneKey, annotated(), "cn-hangzhou-h")
		}, "StorageClass essd of claim data allows no other zone"},
	} {
		t.Run(name, func(t *testing.T) {
			f := twoZones()
			test.change(f)
			p, err := Drain(f, "cn-hangzhou-h")
			if err != nil {
				t.Fatal(err)
			}
			said := ""
			for _, finding := range p.Findings {
				if finding.Object.Kind == "Pod" && finding.Object.Name == "web" {
					said = finding.Message
				}
			}
			if (said != "") != (test.waits != "") || !strings.Contains(said, test.waits) {
				t.Errorf("Pod web: %q, want %q", said, test.waits)
			}
		})
	}
}

// Claims that name their class by the old annotation count in every plan.
func TestPlansReadTheOldClassAnnotation(t *testing.T) {
	for name, plan := range map[string]func(*Facts) (*Plan, error){
		"drain":   func(f *Facts) (*Plan, error) { return Drain(f, "cn-hangzhou-h") },
		"soldout": func(f *Facts) (*Plan, error) { return SoldOut(f, "cn-hangzhou-h", "cloud_essd") },
	} {
		t.Run(name, func(t *testing.T) {
			f := twoZones()
			addClaim(f, topology.WellKnownZoneKey, annotated(), "cn-hangzhou-h")
			f.Classes[0].Parameters = map[string]string{"type": "cloud_essd"}
			p, err := plan(f)
			if err != nil {
				t.Fatal(err)
			}
			for _, finding := range p.Findings {
				if finding.Object.Kind == "PersistentVolumeClaim" && finding.Effect == Waits {
					return
				}
			}
			t.Errorf("the claim doesn't wait: %v", p.Findings)
		})
	}
}
