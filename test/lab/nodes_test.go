package lab

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/topodisk/topodisk/topology"
)

func TestSixNodesAreTwoInEachOfThreeZonesWithTheirZoneUnderBothKeys(t *testing.T) {
	count := map[string]int{}
	for _, n := range SixNodes() {
		labels := n.node().Labels
		if labels[topology.ZoneKey] != n.Zone || labels[topology.WellKnownZoneKey] != n.Zone || labels[corev1.LabelHostname] != n.Name {
			t.Errorf("node %s has labels %v", n.Name, labels)
		}
		for _, key := range n.csiNode().Spec.Drivers[0].TopologyKeys {
			if labels[key] == "" {
				t.Errorf("node %s has no label for topology key %s", n.Name, key)
			}
		}
		count[n.Zone]++
	}
	if len(count) != 3 || count["cn-hangzhou-h"] != 2 || count["cn-hangzhou-i"] != 2 || count["cn-hangzhou-j"] != 2 {
		t.Errorf("nodes by zone are %v", count)
	}
}

func TestSelectionsCountEachChangeOnce(t *testing.T) {
	s := &Selections{byPVC: map[string][]string{}}
	for _, node := range []string{"", "a", "a", "", "", "a", "b"} {
		claim := Claim("default", "c", "class", "1Gi")
		claim.Annotations = map[string]string{SelectedNode: node}
		s.note(claim)
	}
	s.note(Claim("default", "quiet", "class", "1Gi"))
	if got := s.Of("c"); len(got) != 4 || got[0] != "a" || got[1] != "" || got[2] != "a" || got[3] != "b" {
		t.Errorf("selections are %q, want a, taken back, a, b", got)
	}
	if got := s.Rescheduled(); len(got) != 1 || got[0] != "c" {
		t.Errorf("rescheduled are %q, want c", got)
	}
}
