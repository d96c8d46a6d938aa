package topology

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

var benchSizes = []int{100, 1000, 5000, 20000}

// decisions are the questions whose cost must not grow with the cluster.
var decisions = map[string]Question{
	"SelectedStrict":    {ClaimName: "data-web-1", SelectedNode: "node-7", Strict: true, ExtraLabelPrefix: extraPrefix},
	"SelectedNotStrict": {ClaimName: "data-web-1", SelectedNode: "node-7", ExtraLabelPrefix: extraPrefix},
	"Immediate":         {ClaimName: "data-web-1", Immediate: true},
	"ImmediateByLabel":  {ClaimName: "data-web-1", Allowed: allow("pool=pool-1")},
}

// largeNode is a node of one of six zones with as many labels as usual.
func largeNode(i int, generation string) *corev1.Node {
	zone := fmt.Sprintf("cn-hangzhou-%c", 'b'+i%6)
	obj := nodeObject(fmt.Sprintf("node-%d", i), fmt.Sprintf("zone=%s wk=%s region=cn-hangzhou pool=pool-%d disk=available ssd=available", zone, zone, i%4))
	for k := range 20 {
		obj.Labels[fmt.Sprintf("example.com/label-%d", k)] = fmt.Sprintf("value-%d-%d", k, i%7)
	}
	obj.Labels["example.com/generation"] = generation
	return obj
}

func largeIndex(nodes int) *Index {
	x := NewIndex(testDriver)
	for i := range nodes {
		x.SetNode(largeNode(i, "0"))
		x.SetCSINode(csiNodeObject(fmt.Sprintf("node-%d", i), "zone wk region"))
	}
	return x
}

// BenchmarkRequire keeps the clusters of all sizes in memory, so that the
// garbage collector's work is the same for each, and measures the sizes of one
// question one after the other.
func BenchmarkRequire(b *testing.B) {
	indexes := map[int]*Index{}
	for _, size := range benchSizes {
		indexes[size] = largeIndex(size)
	}
	for _, name := range slices.Sorted(maps.Keys(decisions)) {
		for _, size := range benchSizes {
			x := indexes[size]
			require(b, x, decisions[name]) // BenchmarkFirstUse has this one
			b.Run(fmt.Sprintf("%s/nodes=%d", name, size), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					require(b, x, decisions[name])
				}
			})
		}
	}
}

// BenchmarkEvent measures one update of a Node: one that changes its zone, one
// that changes another label, and a heartbeat, which changes none.
func BenchmarkEvent(b *testing.B) {
	for _, size := range benchSizes {
		x := largeIndex(size)
		for _, q := range decisions {
			require(b, x, q)
		}
		moved := largeNode(7, "0")
		moved.Labels[ZoneKey], moved.Labels[WellKnownZoneKey] = "cn-hangzhou-z", "cn-hangzhou-z"
		for _, event := range []struct {
			name    string
			objects [2]*corev1.Node
		}{
			{"Zone", [2]*corev1.Node{moved, largeNode(7, "0")}},
			{"Label", [2]*corev1.Node{largeNode(7, "1"), largeNode(7, "0")}},
			{"Heartbeat", [2]*corev1.Node{largeNode(7, "0"), largeNode(7, "0")}},
		} {
			b.Run(fmt.Sprintf("%s/nodes=%d", event.name, size), func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					x.SetNode(event.objects[i%2])
				}
			})
		}
	}
}

// BenchmarkFirstUse measures the first question of a kind, which visits every node once.
func BenchmarkFirstUse(b *testing.B) {
	for _, size := range benchSizes {
		x := largeIndex(size)
		b.Run(fmt.Sprintf("nodes=%d", size), func(b *testing.B) {
			for b.Loop() {
				clear(x.views)
				require(b, x, decisions["Immediate"])
			}
		})
	}
}
