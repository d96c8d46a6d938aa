package topology

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func topo(labels string) *csi.Topology { return &csi.Topology{Segments: labelsOf(labels)} }

func TestNodeAffinity(t *testing.T) {
	type expression = corev1.NodeSelectorRequirement
	in := func(short, value string) expression {
		return expression{Key: longKey(short), Operator: corev1.NodeSelectorOpIn, Values: []string{value}}
	}
	rows := []struct {
		name       string
		accessible []*csi.Topology
		want       [][]expression
	}{
		{"A1 nil", nil, nil},
		{"A2 empty", []*csi.Topology{}, nil},
		{"A3 one without segments", []*csi.Topology{{}}, nil},
		{"A4 one", []*csi.Topology{topo("zone=a")}, [][]expression{{in("zone", "a")}}},
		{"A5 one, and one without segments", []*csi.Topology{topo("zone=a"), {}}, [][]expression{{in("zone", "a")}}},
		{"A6 nil element", []*csi.Topology{nil}, nil},
		{"A6 nil element among others", []*csi.Topology{nil, topo("zone=a"), nil}, [][]expression{{in("zone", "a")}}},
		{"A7 duplicates", []*csi.Topology{topo("zone=a"), topo("zone=a")}, [][]expression{{in("zone", "a")}}},
		{"A8 two keys", []*csi.Topology{topo("zone=a rack=1")}, [][]expression{{in("rack", "1"), in("zone", "a")}}},
		{"terms are sorted", []*csi.Topology{topo("zone=b"), topo("zone=a")}, [][]expression{{in("zone", "a")}, {in("zone", "b")}}},
		{"two spellings of a zone are two terms, for nodes may carry either", []*csi.Topology{topo("wk=a"), topo("zone=a")}, [][]expression{{in("zone", "a")}, {in("wk", "a")}}},
		{"an empty value is kept, for leaving it out would widen the volume's reach", []*csi.Topology{topo("zone=")}, [][]expression{{in("zone", "")}}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			var want *corev1.VolumeNodeAffinity
			if row.want != nil {
				want = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{}}
				for _, e := range row.want {
					want.Required.NodeSelectorTerms = append(want.Required.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: e})
				}
			}
			for range 10 {
				if diff := cmp.Diff(want, NodeAffinity(row.accessible)); diff != "" {
					t.Fatalf("(-want +got)\n%s", diff)
				}
			}
		})
	}
}
