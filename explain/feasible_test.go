package explain

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/topology"
)

// A minimal set takes all nodes out, and without any one of its reasons some node is left.
func TestMinimalIsMinimal(t *testing.T) {
	empty, found := 0, 0
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 1))
		n := 1 + random.IntN(8)
		var all []*reason
		for range random.IntN(8) {
			r := &reason{cause: dropped[random.IntN(len(dropped))]}
			for i := range n {
				if random.IntN(3) == 0 {
					r.nodes = append(r.nodes, i)
				}
			}
			all = append(all, r)
		}
		set := minimal(all, n)
		if set == nil {
			empty++
			if takesAll(all, n) {
				t.Fatalf("seed %d: no set, though all reasons together take all nodes out", seed)
			}
			continue
		}
		found++
		if !takesAll(set, n) {
			t.Fatalf("seed %d: the set leaves a node", seed)
		}
		for i := range set {
			if takesAll(slices.Delete(slices.Clone(set), i, i+1), n) {
				t.Fatalf("seed %d: reason %d of the set is superfluous", seed, i)
			}
			if len(alone(set, n)[set[i]]) == 0 {
				t.Fatalf("seed %d: reason %d takes out nothing alone", seed, i)
			}
		}
	}
	if empty < 300 || found < 300 {
		t.Errorf("%d without a set and %d with one: too few of either", empty, found)
	}
}

func takesAll(set []*reason, n int) bool {
	for i := range n {
		if !slices.ContainsFunc(set, func(r *reason) bool { return slices.Contains(r.nodes, i) }) {
			return false
		}
	}
	return true
}

// The feasible set is what a plain loop over the nodes finds, and the verdict's reasons are those of a Pod that has no node.
func TestFeasibleSetOfRandomClusters(t *testing.T) {
	states := map[Cause]int{}
	for seed := range uint64(1500) {
		random := rand.New(rand.NewPCG(seed, 2))
		f := randomCluster(random, 1+random.IntN(6))
		var want []string
		for i := range f.Nodes {
			if wouldDo(f, &f.Nodes[i]) {
				want = append(want, f.Nodes[i].Name)
			}
		}
		c := newCluster(f)
		x := c.feasible(&f.Pods[0])
		var got []string
		for _, i := range x.left() {
			got = append(got, x.all[i].Name)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: nodes %v are left, want %v", seed, got, want)
		}
		v := Why(f)
		states[v.Cause]++
		if (v.Cause == BeingScheduled) != (len(want) > 0) || (len(v.Reasons) == 0) != (len(want) > 0) {
			t.Fatalf("seed %d: %s with %d reasons, and %d nodes would do", seed, v.Cause, len(v.Reasons), len(want))
		}
		for _, problem := range append(formProblems(f, v), evidenceProblems(f, v)...) {
			t.Fatalf("seed %d: %s", seed, problem)
		}
	}
	for _, cause := range []Cause{BeingScheduled, NoNodeInVolumeZone, VolumesInDifferentZones, ZoneSoldOut, AttachLimitReached, PodUnschedulable,
		DriverNotOnNode, DriverNotReadyOnNode} {
		if states[cause] == 0 {
			t.Errorf("no cluster has %s: %v", cause, states)
		}
	}
}

// wouldDo says by the plain meaning of each rule whether a node of randomCluster can have the Pod.
func wouldDo(f *Facts, node *corev1.Node) bool {
	pod := &f.Pods[0]
	if zone := pod.Spec.NodeSelector[topology.WellKnownZoneKey]; zone != "" && node.Labels[topology.WellKnownZoneKey] != zone {
		return false
	}
	if len(node.Spec.Taints) > 0 {
		return false
	}
	cpu := resource.MustParse("1")
	attached, wanted := 0, 0
	for i := range f.Pods {
		if f.Pods[i].Spec.NodeName == node.Name {
			cpu.Add(resource.MustParse("1"))
		}
	}
	for i := range f.Attachments {
		if f.Attachments[i].Spec.NodeName == node.Name {
			attached++
		}
	}
	if cpu.Cmp(node.Status.Allocatable[corev1.ResourceCPU]) > 0 {
		return false
	}
	var entry *storagev1.CSINodeDriver
	for i := range f.CSINodes {
		if f.CSINodes[i].Name == node.Name && len(f.CSINodes[i].Spec.Drivers) > 0 {
			entry = &f.CSINodes[i].Spec.Drivers[0]
		}
	}
	if entry == nil {
		return false
	}
	for i := range f.Claims {
		wanted++
		if f.Claims[i].Spec.VolumeName == "" {
			for j := range f.Capacities {
				if f.Capacities[j].NodeTopology.MatchLabels[topology.WellKnownZoneKey] == node.Labels[topology.WellKnownZoneKey] &&
					f.Capacities[j].Capacity.IsZero() {
					return false
				}
			}
			continue
		}
		for j := range f.Volumes {
			if f.Volumes[j].Name == f.Claims[i].Spec.VolumeName && topology.ZonesOfVolume(&f.Volumes[j])[0] != node.Labels[topology.WellKnownZoneKey] {
				return false
			}
		}
	}
	return attached+wanted <= int(*entry.Allocatable.Count)
}

// randomCluster has a Pod without a node, with claims that are bound or not, and nodes with all that may keep it off.
func randomCluster(random *rand.Rand, nodes int) *Facts {
	zones := []string{"a", "b", "c"}
	wait, yes := storagev1.VolumeBindingWaitForFirstConsumer, true
	f := &Facts{
		At: time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC), Driver: "d", Subject: Ref{Kind: kindPod, Namespace: "shop", Name: "web"},
		CSIDriver: &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{StorageCapacity: &yes}},
		Classes: []storagev1.StorageClass{{ObjectMeta: metav1.ObjectMeta{Name: "disk"}, Provisioner: "d", VolumeBindingMode: &wait,
			Parameters: map[string]string{"type": "cloud_essd"}}},
		Pods: []corev1.Pod{busyPod("web", "")},
	}
	if random.IntN(4) == 0 {
		f.Pods[0].Spec.NodeSelector = map[string]string{topology.WellKnownZoneKey: zones[random.IntN(3)]}
	}
	for i := range random.IntN(3) {
		claim := randomClaim(random, f, fmt.Sprintf("data-%d", i), zones)
		f.Pods[0].Spec.Volumes = append(f.Pods[0].Spec.Volumes, volumeOfClaim(claim.Name))
	}
	if len(f.Claims) == 0 {
		randomClaim(random, f, "data-0", zones)
		f.Pods[0].Spec.Volumes = []corev1.Volume{volumeOfClaim("data-0")}
	}
	for _, zone := range zones {
		size := resource.MustParse("1Ti")
		if random.IntN(3) == 0 {
			size = resource.MustParse("0")
		}
		f.Capacities = append(f.Capacities,
			storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Name: "c-" + zone, Namespace: "kube-system"}, StorageClassName: "disk",
				NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{topology.WellKnownZoneKey: zone}}, Capacity: &size, MaximumVolumeSize: &size})
	}
	for i := range nodes {
		randomNode(random, f, fmt.Sprintf("n%d", i), zones[random.IntN(3)])
	}
	return f
}

func volumeOfClaim(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}
}

func csiNodeWithLimit(name string, limit int32) storagev1.CSINode {
	return storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{
		Name: "d", TopologyKeys: []string{topology.WellKnownZoneKey}, Allocatable: &storagev1.VolumeNodeResources{Count: &limit}}}}}
}

func attachmentOf(name, driver, volume, node string) storagev1.VolumeAttachment {
	return storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.VolumeAttachmentSpec{
		Attacher: driver, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}}}
}

func busyPod(name, node string) corev1.Pod {
	cpu := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: cpu}}}}}
}

func randomClaim(random *rand.Rand, f *Facts, name string, zones []string) corev1.PersistentVolumeClaim {
	class, size := "disk", corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("20Gi")}
	claim := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class, Resources: corev1.VolumeResourceRequirements{Requests: size}}}
	if random.IntN(2) == 0 {
		claim.Spec.VolumeName, claim.Status = "d-"+name, corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: size}
		f.Volumes = append(f.Volumes, zonalVolume("d-"+name, name, zones[random.IntN(3)]))
	}
	f.Claims = append(f.Claims, claim)
	return claim
}

func zonalVolume(name, claim, zone string) corev1.PersistentVolume {
	return corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
		Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: claim},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: name}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: topology.WellKnownZoneKey, Operator: corev1.NodeSelectorOpIn,
					Values: []string{zone}}}}}}}}}
}

func randomNode(random *rand.Rand, f *Facts, name, zone string) {
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{topology.WellKnownZoneKey: zone}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourcePods: resource.MustParse("9")}}}
	switch random.IntN(8) {
	case 0:
		node.Spec.Taints = []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}}
	case 1:
		node.Spec.Taints = []corev1.Taint{{Key: StartupTaint, Effect: corev1.TaintEffectNoSchedule}}
	case 2:
		f.Pods = append(f.Pods, busyPod(name+"-0", name), busyPod(name+"-1", name))
	}
	f.Nodes = append(f.Nodes, node)
	if random.IntN(8) == 0 {
		return
	}
	f.CSINodes = append(f.CSINodes, csiNodeWithLimit(name, int32(random.IntN(4)+1)))
	for i := range random.IntN(3) {
		volume := fmt.Sprintf("d-%s-%d", name, i)
		f.Attachments = append(f.Attachments, attachmentOf("csi-"+volume, "d", volume, name))
	}
}

// RoomNodes are the nodes that a Pod is kept off by room and attachments alone.
func TestRoomNodes(t *testing.T) {
	for name, want := range map[string][]string{
		"unschedulable-without-storage": {"worker-h1", "worker-i1", "worker-j1"},
		"no-room-in-volume-zone":        {"worker-h1"},
		"zone-sold-out":                 nil,
		"attach-limit":                  {"worker-h1", "worker-i1"},
		"attach-limit-on-new-node":      {"worker-h1"},
		"selected-node-gone":            nil,                                     // its claim has a node
		"other-provisioner":             {"worker-h1", "worker-i1", "worker-j1"}, // of the claim's Pod
		"zone-labels-disagree":          nil,                                     // a node's
	} {
		if got := RoomNodes(factsOf(t, name)); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// BenchmarkWhy judges a Pod that no node of 5 000 can have, among 20 000 volumes.
func BenchmarkWhy(b *testing.B) {
	f := bigCluster(5000, 20000)
	if v := Why(f); v.Cause != NoNodeInVolumeZone {
		b.Fatalf("%s", textOf(v))
	}
	for b.Loop() {
		Why(f)
	}
}

// bigCluster has a Pod whose volume is in a zone all of whose nodes are full.
func bigCluster(nodes, volumes int) *Facts {
	random := rand.New(rand.NewPCG(1, 1))
	f := randomCluster(random, 0)
	f.Claims, f.Volumes, f.Pods[0].Spec.NodeSelector = nil, nil, nil
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("20Gi")}
	f.Pods[0].Spec.Volumes = []corev1.Volume{volumeOfClaim("data")}
	f.Claims = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: "shop"},
		Spec:   corev1.PersistentVolumeClaimSpec{VolumeName: "d-0"},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: size}}}
	for i := range nodes {
		name, zone := "n"+strconv.Itoa(i), string("abc"[i%3])
		cpu := resource.MustParse("4")
		if zone == "a" {
			cpu = resource.MustParse("500m")
		}
		f.Nodes = append(f.Nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{topology.WellKnownZoneKey: zone}},
			Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: cpu, corev1.ResourcePods: resource.MustParse("110")}}})
		f.CSINodes = append(f.CSINodes, csiNodeWithLimit(name, 15))
	}
	for i := range volumes {
		name, claim := "d-"+strconv.Itoa(i), "data"
		if i > 0 {
			claim += "-" + strconv.Itoa(i)
			f.Attachments = append(f.Attachments, attachmentOf("csi-"+name, "d", name, "n"+strconv.Itoa(i%nodes)))
		}
		f.Volumes = append(f.Volumes, zonalVolume(name, claim, string("abc"[i%3])))
	}
	return f
}
