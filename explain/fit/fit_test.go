package fit

import (
	"iter"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/topology"
)

func nodeWith(labels map[string]string, change ...func(*corev1.Node)) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: labels}}
	for _, c := range change {
		c(node)
	}
	return node
}

func required(key string, values ...string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}}}}}
}

func allowed(key string, values ...string) corev1.TopologySelectorTerm {
	return corev1.TopologySelectorTerm{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: key, Values: values}}}
}

func TestLabelsDecideWhereAPodFits(t *testing.T) {
	h := nodeWith(map[string]string{topology.WellKnownZoneKey: "h", "pool": "a"})
	pod := func(spec corev1.PodSpec) *corev1.Pod { return &corev1.Pod{Spec: spec} }
	affine := func(s *corev1.NodeSelector) *corev1.Pod {
		return pod(corev1.PodSpec{Affinity: &corev1.Affinity{
			NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: s}}})
	}
	volume := func(a *corev1.VolumeNodeAffinity) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{NodeAffinity: a}}
	}
	tied := func(key, zone string) *corev1.PersistentVolume {
		return volume(&corev1.VolumeNodeAffinity{Required: required(key, zone)})
	}
	topologies := func(terms ...corev1.TopologySelectorTerm) []corev1.TopologySelectorTerm { return terms }
	for name, test := range map[string]struct {
		rule func(*corev1.Node) bool
		want bool
	}{
		"no nodeSelector":           {NodeSelector(pod(corev1.PodSpec{})), true},
		"nodeSelector":              {NodeSelector(pod(corev1.PodSpec{NodeSelector: map[string]string{"pool": "a"}})), true},
		"nodeSelector of others":    {NodeSelector(pod(corev1.PodSpec{NodeSelector: map[string]string{"pool": "b"}})), false},
		"no affinity":               {NodeAffinity(pod(corev1.PodSpec{})), true},
		"nothing required":          {NodeAffinity(affine(nil)), true},
		"affinity":                  {NodeAffinity(affine(required("pool", "a", "b"))), true},
		"affinity to others":        {NodeAffinity(affine(required("pool", "b"))), false},
		"affinity without terms":    {NodeAffinity(affine(&corev1.NodeSelector{})), false},
		"affinity that is no label": {NodeAffinity(affine(required("pool", "no label!"))), false},
		"selector, not affinity":    {NodeSelector(affine(required("pool", "b"))), true},
		"volume for any node":       {VolumeAffinity(volume(nil)), true},
		"volume that requires none": {VolumeAffinity(volume(&corev1.VolumeNodeAffinity{})), true},
		"volume here":               {VolumeAffinity(tied(topology.WellKnownZoneKey, "h")), true},
		"volume elsewhere":          {VolumeAffinity(tied(topology.WellKnownZoneKey, "i")), false},
		"volume by the other key":   {VolumeAffinity(tied(topology.ZoneKey, "h")), false},
		"class for any node":        {AllowedTopologies(nil), true},
		"class with an empty term":  {AllowedTopologies(topologies(corev1.TopologySelectorTerm{})), false},
		"class for here":            {AllowedTopologies(topologies(allowed(topology.WellKnownZoneKey, "i", "h"))), true},
		"class for elsewhere":       {AllowedTopologies(topologies(allowed(topology.WellKnownZoneKey, "i"))), false},
		"class by the other key":    {AllowedTopologies(topologies(allowed(topology.ZoneKey, "h"))), false},
		"class with a second term":  {AllowedTopologies(topologies(allowed(topology.ZoneKey, "h"), allowed("pool", "a"))), true},
		"class with an empty value": {AllowedTopologies(topologies(allowed(topology.ZoneKey, ""))), false},
		"class with two labels, one not here": {AllowedTopologies(topologies(corev1.TopologySelectorTerm{
			MatchLabelExpressions: append(
				allowed("pool", "a").MatchLabelExpressions, allowed(topology.WellKnownZoneKey, "i").MatchLabelExpressions...)})), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.rule(h); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestTaintsAndCordonsKeepPodsOff(t *testing.T) {
	tainted := func(key string, effect corev1.TaintEffect) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: effect}) }
	}
	cordoned := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	cordonTaint := tainted(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule)
	all := []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	gpu := []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
	for name, test := range map[string]struct {
		node        *corev1.Node
		tolerations []corev1.Toleration
		taint       string // empty: none
		cordoned    bool
	}{
		"a plain node":             {nodeWith(nil), nil, "", false},
		"a taint":                  {nodeWith(nil, tainted("gpu", corev1.TaintEffectNoSchedule)), nil, "gpu", false},
		"a taint that evicts":      {nodeWith(nil, tainted("gpu", corev1.TaintEffectNoExecute)), nil, "gpu", false},
		"a taint that only deters": {nodeWith(nil, tainted("gpu", corev1.TaintEffectPreferNoSchedule)), nil, "", false},
		"a taint that it tolerates": {
			nodeWith(nil, tainted("gpu", corev1.TaintEffectNoSchedule), tainted("lab", corev1.TaintEffectNoSchedule)), gpu, "lab", false},
		"a cordon before its taint":      {nodeWith(nil, cordoned), nil, "", true},
		"a cordon with its taint":        {nodeWith(nil, cordoned, cordonTaint), nil, corev1.TaintNodeUnschedulable, true},
		"a cordon that is gone":          {nodeWith(nil, cordonTaint), nil, corev1.TaintNodeUnschedulable, false},
		"a cordon that it tolerates":     {nodeWith(nil, cordoned, cordonTaint), all, "", false},
		"a cordon and other tolerations": {nodeWith(nil, cordoned), gpu, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			taint, found := UntoleratedTaint(test.node, test.tolerations)
			if taint.Key != test.taint || found != (test.taint != "") {
				t.Errorf("taint %q, %t", taint.Key, found)
			}
			if got := Cordoned(test.node, test.tolerations); got != test.cordoned {
				t.Errorf("cordoned: %t", got)
			}
		})
	}
}

func quantities(cpu, gpus, pods string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, text := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, "vendor/gpu": gpus, corev1.ResourcePods: pods} {
		if text != "" {
			list[name] = resource.MustParse(text)
		}
	}
	return list
}

func TestRoomIsWhatPodsLeave(t *testing.T) {
	asks := func(cpu, gpus string, change ...func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c",
			Resources: corev1.ResourceRequirements{Requests: quantities(cpu, gpus, "")}}}}}
		for _, c := range change {
			c(p)
		}
		return p
	}
	ended := func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
	has := func(cpu string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c",
				Resources: &corev1.ResourceRequirements{Requests: quantities(cpu, "", "")}}}
		}
	}
	names := func(n ...corev1.ResourceName) []corev1.ResourceName { return n }
	one := func(p *corev1.Pod) []*corev1.Pod { return []*corev1.Pod{p} }
	gpu, cpu, pods := corev1.ResourceName("vendor/gpu"), corev1.ResourceCPU, corev1.ResourcePods
	for name, test := range map[string]struct {
		allocatable corev1.ResourceList
		on          []*corev1.Pod
		pod         *corev1.Pod
		want        []corev1.ResourceName
	}{
		"an empty node":               {quantities("2", "", "9"), nil, asks("2", ""), nil},
		"too small a node":            {quantities("2", "", "9"), nil, asks("2001m", ""), names(cpu)},
		"all that is left":            {quantities("2", "", "9"), one(asks("500m", "")), asks("1500m", ""), nil},
		"more than is left":           {quantities("2", "", "9"), one(asks("600m", "")), asks("1500m", ""), names(cpu)},
		"a Pod that has ended":        {quantities("2", "", "9"), one(asks("2", "", ended)), asks("1500m", ""), nil},
		"a Pod that still has more":   {quantities("2", "", "9"), one(asks("500m", "", has("1"))), asks("1500m", ""), names(cpu)},
		"a Pod that is to have more":  {quantities("2", "", "9"), one(asks("1", "", has("500m"))), asks("1500m", ""), names(cpu)},
		"more than there is taken":    {quantities("2", "", "9"), one(asks("3", "")), asks("", ""), nil},
		"as many Pods as it takes":    {quantities("2", "", "1"), one(asks("", "")), asks("1", ""), names(pods)},
		"a resource it doesn't have":  {quantities("2", "", "9"), nil, asks("1", "1"), names(gpu)},
		"none of one it doesn't have": {quantities("2", "", "9"), nil, asks("1", "0"), nil},
		"all at once":                 {quantities("2", "1", "0"), one(asks("1", "1")), asks("2", "1"), names(cpu, gpu, pods)},
	} {
		t.Run(name, func(t *testing.T) {
			node := nodeWith(nil, func(n *corev1.Node) { n.Status.Allocatable = test.allocatable })
			before := node.DeepCopy()
			if got := Lacking(Free(node, test.on), Requests(test.pod)); !slices.Equal(got, test.want) {
				t.Errorf("lacks %v, want %v", got, test.want)
			}
			if cpu := node.Status.Allocatable[cpu]; !cpu.Equal(before.Status.Allocatable[corev1.ResourceCPU]) {
				t.Errorf("the node's allocatable CPUs are changed to %s", cpu.String())
			}
		})
	}
}

func TestCapacityIsWhatAnObjectOfTheNodeSays(t *testing.T) {
	object := func(class, zone, most string) storagev1.CSIStorageCapacity {
		c := storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Name: class + zone + most}, StorageClassName: class}
		if zone != "" {
			c.NodeTopology = &metav1.LabelSelector{MatchLabels: map[string]string{topology.WellKnownZoneKey: zone}}
		}
		if most != "" {
			c.MaximumVolumeSize = new(resource.MustParse(most))
		}
		return c
	}
	total := func(c storagev1.CSIStorageCapacity, size string) storagev1.CSIStorageCapacity {
		c.Capacity = new(resource.MustParse(size))
		return c
	}
	h := nodeWith(map[string]string{topology.WellKnownZoneKey: "h"})
	for name, test := range map[string]struct {
		objects []storagev1.CSIStorageCapacity
		size    string
		want    bool
	}{
		"large enough":            {[]storagev1.CSIStorageCapacity{object("fast", "h", "20Gi")}, "20Gi", true},
		"too small":               {[]storagev1.CSIStorageCapacity{object("fast", "h", "20Gi")}, "21Gi", false},
		"the second is enough":    {[]storagev1.CSIStorageCapacity{object("fast", "h", "1Gi"), object("fast", "h", "40Gi")}, "21Gi", true},
		"of another zone":         {[]storagev1.CSIStorageCapacity{object("fast", "i", "20Gi")}, "1Gi", false},
		"of another class":        {[]storagev1.CSIStorageCapacity{object("slow", "h", "20Gi")}, "1Gi", false},
		"of no node":              {[]storagev1.CSIStorageCapacity{object("fast", "", "20Gi")}, "1Gi", false},
		"none at all":             {[]storagev1.CSIStorageCapacity{object("fast", "h", "0")}, "0", false},
		"any, for a zero size":    {[]storagev1.CSIStorageCapacity{object("fast", "h", "1")}, "0", true},
		"capacity without a most": {[]storagev1.CSIStorageCapacity{total(object("fast", "h", ""), "20Gi")}, "20Gi", true},
		"the most before it":      {[]storagev1.CSIStorageCapacity{total(object("fast", "h", "1Gi"), "20Gi")}, "20Gi", false},
		"neither":                 {[]storagev1.CSIStorageCapacity{object("fast", "h", "")}, "1Gi", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := HasCapacity(Capacities(test.objects, "fast"), resource.MustParse(test.size))(h); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestANodeTakesTheTypesOfItsLabels(t *testing.T) {
	label := func(category, value string) map[string]string {
		return map[string]string{disk.NodeTypeLabel + category: value}
	}
	for name, test := range map[string]struct {
		labels map[string]string
		want   bool
	}{
		"no label":                {nil, true},
		"one of another domain":   {map[string]string{"pool": "a"}, true},
		"the type":                {label("cloud_essd", "available"), true},
		"the other type":          {label("cloud_auto", "available"), true},
		"none of them":            {label("cloud_ssd", "available"), false},
		"the type, not available": {label("cloud_essd", "unavailable"), false},
		"another, not available":  {label("cloud_ssd", "unavailable"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := TakesType("cloud_essd", "cloud_auto")(nodeWith(test.labels)); got != test.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestMinimalDropsTheLastFirst(t *testing.T) {
	for name, test := range map[string]struct {
		reasons [][]int
		n       int
		want    [][]int
	}{
		"no nodes":             {[][]int{{}}, 0, nil},
		"a node is left":       {[][]int{{0}, {2}}, 3, nil},
		"no reasons":           {nil, 1, nil},
		"one is enough":        {[][]int{{0, 1}, {0, 1}}, 2, [][]int{{0, 1}}},
		"the last is needed":   {[][]int{{0}, {1}, {1, 2}}, 3, [][]int{{0}, {1, 2}}},
		"the first is dropped": {[][]int{{1}, {0, 1}, {1, 2}}, 3, [][]int{{0, 1}, {1, 2}}},
		"one excludes nothing": {[][]int{{}, {0}}, 1, [][]int{{0}}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Minimal(test.reasons, test.n, slices.Values[[]int]); !slices.EqualFunc(got, test.want, slices.Equal[[]int]) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

// A minimal set excludes all nodes, and without any one of its reasons some node is left.
func TestMinimalIsMinimal(t *testing.T) {
	nodes := func(r []int) iter.Seq[int] { return slices.Values(r) }
	found := 0
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 3))
		n := 1 + random.IntN(8)
		var reasons [][]int
		for range random.IntN(8) {
			reasons = append(reasons, random.Perm(n)[:random.IntN(n+1)])
		}
		set := Minimal(reasons, n, nodes)
		if (set != nil) != excludesAll(reasons, n) || set != nil && !excludesAll(set, n) {
			t.Fatalf("seed %d: %v of %v", seed, set, reasons)
		}
		for i := range set {
			found++
			if excludesAll(slices.Delete(slices.Clone(set), i, i+1), n) {
				t.Fatalf("seed %d: reason %d of %v is superfluous", seed, i, set)
			}
		}
	}
	if found < 500 {
		t.Errorf("only %d reasons in all sets", found)
	}
}

func excludesAll(reasons [][]int, n int) bool {
	all := map[int]bool{}
	for _, i := range slices.Concat(reasons...) {
		all[i] = true
	}
	return len(all) == n
}
