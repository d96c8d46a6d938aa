package topology

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
)

func TestImmediateUsesTheKeysOfMostNodes(t *testing.T) {
	x := indexOf(
		machine{"n1", "zone=a rack=1", "zone rack"},
		machine{"n2", "zone=b rack=1", "zone"},
	)
	q := Question{ClaimName: "data-web-0", Immediate: true}
	// One node each: the alphabet decides, and "rack zone" comes before "zone".
	checkAnswer(t, x, q, answer{requisite: "rack=1 zone=a | rack=1 zone=b", preferred: "rack=1 zone=b | rack=1 zone=a"})

	x.SetNode(nodeObject("n3", "zone=c"))
	x.SetCSINode(csiNodeObject("n3", "zone"))
	checkAnswer(t, x, q, both("zone=a | zone=b | zone=c"))

	// A node that lacks its labels has no say.
	x.SetNode(nodeObject("n3", ""))
	checkAnswer(t, x, q, answer{requisite: "rack=1 zone=a | rack=1 zone=b", preferred: "rack=1 zone=b | rack=1 zone=a"})
}

func TestNodesThatContradictThemselvesHaveNoSay(t *testing.T) {
	x := indexOf(
		machine{"n1", "zone=a", "zone"},
		machine{"odd1", "zone=b wk=x rack=1", "zone wk rack"},
		machine{"odd2", "zone=b wk=x rack=1", "zone wk rack"},
	)
	checkAnswer(t, x, Question{Immediate: true}, both("zone=a"))
}

func TestMislabelledNodesAreKnownByTheirHostname(t *testing.T) {
	x := NewIndex(testDriver)
	changes := 0
	x.OnMislabelled(func() { changes++ })
	host := func(name, labels string) {
		n := nodeObject(name, labels)
		n.Labels[corev1.LabelHostname] = "host-" + name
		x.SetNode(n)
	}
	check := func(what string, wantChanges int, want ...string) {
		t.Helper()
		if got := x.Mislabelled(); !slices.Equal(got, want) || changes != wantChanges {
			t.Errorf("%s: got %q after %d changes, want %q after %d", what, got, changes, want, wantChanges)
		}
	}
	host("n1", "zone=a wk=x")
	check("the driver is not registered", 0)
	x.SetCSINode(csiNodeObject("n1", "zone wk"))
	check("now it is", 1, "host-n1")
	host("n1", "zone=a wk=y")
	check("another label that is wrong", 1, "host-n1")
	x.SetCSINode(csiNodeObject("n0", "zone wk"))
	host("n0", "zone=a wk=x")
	check("another node", 2, "host-n0", "host-n1")
	x.SetNode(nodeObject("n0", "zone=a wk=x"))
	check("it has no hostname any more", 3, "host-n1")
	host("n1", "zone=a wk=a")
	check("it is mended", 4)
	host("n1", "zone=a wk=x")
	x.SetCSINode(csiNodeObject("n1", "zone"))
	check("it reports one key", 6)
	x.SetCSINode(csiNodeObject("n1", "zone wk"))
	x.DeleteNode("n1")
	check("it is gone", 8)
}

func TestAZoneLeavesWithItsLastNode(t *testing.T) {
	x := indexOf(append([]machine{{"n4", "zone=c", "zone"}}, threeZones...)...)
	q := Question{ClaimName: "data-web-0", Immediate: true}
	three, two := both("zone=a | zone=b | zone=c"), answer{requisite: "zone=a | zone=b", preferred: "zone=b | zone=a"}
	checkAnswer(t, x, q, three)
	x.DeleteNode("n4")
	checkAnswer(t, x, q, three)
	x.SetCSINode(csiNodeObject("n3", otherDriver))
	checkAnswer(t, x, q, two)
	x.SetCSINode(csiNodeObject("n3", "zone"))
	checkAnswer(t, x, q, three)
	x.DeleteCSINode("n3")
	checkAnswer(t, x, q, two)
	x.DeleteNode("n3")
	checkAnswer(t, x, q, two)
}

func TestEventsWithoutObjectsAreHarmless(t *testing.T) {
	x := indexOf(threeZones...)
	x.SetNode(nil)
	x.SetCSINode(nil)
	x.DeleteNode("nobody")
	x.DeleteCSINode("nobody")
	checkAnswer(t, x, Question{SelectedNode: "n2", Strict: true}, both("zone=b"))
	if len(x.nodes) != 3 {
		t.Errorf("the index knows %d nodes, want 3", len(x.nodes))
	}
}

func TestDeletedNodesLeaveNothingBehind(t *testing.T) {
	x := indexOf(append([]machine{{"odd", "zone=a wk=b", "zone wk"}}, threeZones...)...)
	checkAnswer(t, x, Question{SelectedNode: "n2"}, answer{requisite: "zone=a | zone=b | zone=c", preferred: "zone=b | zone=c | zone=a"})
	for _, name := range []string{"n1", "n2", "n3", "odd"} {
		x.DeleteNode(name)
		x.DeleteCSINode(name)
	}
	if n := len(x.nodes) + len(x.driverKeys) + len(x.keySets) + len(x.conflicts); n != 0 {
		t.Errorf("an index without nodes still holds %d entries: %+v", n, x)
	}
	for name, v := range x.views {
		if len(v.tallies) != 0 {
			t.Errorf("view %q still holds %d terms", name, len(v.tallies))
		}
	}
}

func TestManyClassesUseABoundedNumberOfViews(t *testing.T) {
	x := indexOf(with(threeKeys, machine{"n2", "zone=b wk=b region=r1 pool=p70", "zone wk region"})...)
	for round := range 2 {
		for i := range maxViews + 100 {
			q := Question{ClaimName: "pvc", Allowed: allow(fmt.Sprintf("pool=p%d", i))}
			want := answer{reason: NoTopology}
			if i == 70 {
				want = both("region=r1 wk=b zone=b")
			}
			checkAnswer(t, x, q, want)
		}
		if len(x.views) > maxViews {
			t.Fatalf("round %d: %d views, want at most %d", round, len(x.views), maxViews)
		}
	}
}

func TestTheViewInUseIsKept(t *testing.T) {
	x := indexOf(threeKeys...)
	often := Question{ClaimName: "pvc", Immediate: true}
	checkAnswer(t, x, often, answer{requisite: "region=r1 wk=a zone=a | region=r1 wk=b zone=b | region=r1 wk=c zone=c", preferred: "region=r1 wk=b zone=b | region=r1 wk=c zone=c | region=r1 wk=a zone=a"})
	first := slices.Collect(maps.Values(x.views))[0]
	for i := range maxViews + 100 {
		require(t, x, often)
		checkAnswer(t, x, Question{Allowed: allow(fmt.Sprintf("pool=p%d", i))}, answer{reason: NoTopology})
	}
	if !slices.Contains(slices.Collect(maps.Values(x.views)), first) {
		t.Error("the view that every question used was dropped")
	}
}

func TestAnswersAreTheCallersOwn(t *testing.T) {
	for name, q := range map[string]Question{
		"strict":     {SelectedNode: "n2", Strict: true},
		"not strict": {SelectedNode: "n2"},
		"allowed":    {SelectedNode: "n2", Allowed: allow("zone=a,b")},
		"immediate":  {ClaimName: "pvc", Immediate: true},
	} {
		t.Run(name, func(t *testing.T) {
			x := indexOf(threeZones...)
			req, err := x.Require(q)
			before := bytesOf(t, req, err)
			other, _ := x.Require(q)
			for _, list := range [][]*csi.Topology{req.Requisite, req.Preferred} {
				for i := range list {
					list[i].Segments[ZoneKey] = "spoilt"
					list[i] = nil
				}
			}
			if after := bytesOf(t, other, nil); after != before {
				t.Errorf("changing an answer changed another")
			}
			if again, err := x.Require(q); bytesOf(t, again, err) != before {
				t.Errorf("changing an answer changed the next")
			}
		})
	}
	t.Run("requisite and preferred", func(t *testing.T) {
		req := require(t, indexOf(threeZones...), Question{SelectedNode: "n1"})
		req.Requisite[0].Segments[ZoneKey] = "spoilt"
		if got := show(req.Preferred); got != "zone=a | zone=b | zone=c" {
			t.Errorf("changing requisite made preferred %q", got)
		}
	})
}

func TestQuestionsAndEventsMayRunTogether(t *testing.T) {
	x := indexOf(threeKeys...)
	questions := []Question{
		{SelectedNode: "n1", Strict: true},
		{SelectedNode: "n2"},
		{ClaimName: "pvc", Immediate: true},
		{ClaimName: "pvc", Allowed: allow("pool=x | wk=a")},
	}
	var group sync.WaitGroup
	for worker := range 4 {
		group.Go(func() {
			name := fmt.Sprintf("w%d", worker)
			for i := range 200 {
				x.SetNode(nodeObject(name, fmt.Sprintf("zone=z%d wk=z%d region=r1 pool=x", i%3, i%3)))
				x.SetCSINode(csiNodeObject(name, "zone wk region"))
				req, err := x.Require(questions[i%len(questions)])
				if err != nil {
					t.Errorf("got error %v", err)
					return
				}
				for _, topology := range req.Preferred {
					topology.Segments["mine"] = name
					x.Carried(topology)
				}
				x.DeleteCSINode(name)
				x.DeleteNode(name)
			}
		})
	}
	group.Wait()
	checkAnswer(t, x, Question{ClaimName: "pvc", Immediate: true}, answer{
		requisite: "region=r1 wk=a zone=a | region=r1 wk=b zone=b | region=r1 wk=c zone=c",
		preferred: "region=r1 wk=b zone=b | region=r1 wk=c zone=c | region=r1 wk=a zone=a",
	})
}

func TestCarried(t *testing.T) {
	x := indexOf(append([]machine{{"m1", "zone=d", "zone"}, {"m2", "zone=e", ""}}, threeKeys...)...)
	for labels, want := range map[string]bool{
		"":              false,
		"wk=a":          true,
		"zone=a wk=a":   true,
		"zone=a pool=x": false,
		"wk=d":          true, // the zone's other key
		"wk=e":          false,
		"zone=x":        false,
		"region=r1":     true,
	} {
		if got := x.Carried(topo(labels)); got != want {
			t.Errorf("Carried(%s) is %v, want %v", labels, got, want)
		}
	}
	if x.Carried(nil) {
		t.Error("no topology is carried by a node")
	}
}

// TestADecisionCostsTheSameForAnyNumberOfNodes counts allocations, which unlike
// times do not hang on the machine.
func TestADecisionCostsTheSameForAnyNumberOfNodes(t *testing.T) {
	few, many := largeIndex(100), largeIndex(3000)
	for name, q := range decisions {
		cost := func(x *Index) float64 {
			return testing.AllocsPerRun(20, func() { require(t, x, q) })
		}
		if a, b := cost(few), cost(many); b > a+3 { // regexp's pools vary a little
			t.Errorf("%s: %v allocations for 3000 nodes, %v for 100", name, b, a)
		}
	}
}
