package topology

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

var (
	threeZones = []machine{{"n1", "zone=a", "zone"}, {"n2", "zone=b", "zone"}, {"n3", "zone=c", "zone"}}
	racks      = []machine{{"n1", "zone=a rack=1", "zone rack"}, {"n2", "zone=a rack=2", "zone rack"}, {"n3", "zone=b rack=1", "zone rack"}}
	regional   = []machine{{"n1", "zone=a region=r1", "zone"}, {"n2", "zone=b region=r1", "zone"}, {"n3", "zone=c region=r2", "zone"}}
	// threeKeys are nodes as our own node plugin registers them.
	threeKeys = []machine{
		{"n1", "zone=a wk=a region=r1", "zone wk region"},
		{"n2", "zone=b wk=b region=r1", "zone wk region"},
		{"n3", "zone=c wk=c region=r1", "zone wk region"},
	}
)

func with(machines []machine, changed ...machine) []machine {
	out := slices.Clone(machines)
	for _, c := range changed {
		out[slices.IndexFunc(out, func(m machine) bool { return m.name == c.name })] = c
	}
	return out
}

func both(list string) answer { return answer{requisite: list, preferred: list} }

type question struct {
	name    string
	cluster []machine
	q       Question
	want    answer
}

func runQuestions(t *testing.T, rows []question) {
	t.Helper()
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			checkAnswer(t, indexOf(row.cluster...), row.q, row.want)
		})
	}
}

// TestDecisions is the table of upstream's behaviour, row by row, with the
// answers that we give where upstream leaves a claim stuck.
func TestDecisions(t *testing.T) {
	runQuestions(t, []question{
		{"V01 selected, strict", threeZones, Question{SelectedNode: "n2", Strict: true}, both("zone=b")},
		{"V02 selected, not strict", threeZones, Question{SelectedNode: "n2"}, answer{requisite: "zone=a | zone=b | zone=c", preferred: "zone=b | zone=c | zone=a"}},
		{"V03 selected, not strict, last zone", threeZones, Question{SelectedNode: "n3"}, answer{requisite: "zone=a | zone=b | zone=c", preferred: "zone=c | zone=a | zone=b"}},
		{"V04 selected, not strict, allowed", threeZones, Question{SelectedNode: "n3", Allowed: allow("zone=b,c")}, answer{requisite: "zone=b | zone=c", preferred: "zone=c | zone=b"}},
		{"V05 selected, not strict, not allowed", threeZones, Question{SelectedNode: "n1", Allowed: allow("zone=b,c")}, answer{reason: NodeNotAllowed, node: "n1"}},
		{"V06 selected, strict, not allowed", threeZones, Question{SelectedNode: "n1", Strict: true, Allowed: allow("zone=b,c")}, answer{reason: NodeNotAllowed, node: "n1"}},
		{"V07 selected, strict, allowed", threeZones, Question{SelectedNode: "n2", Strict: true, Allowed: allow("zone=b")}, both("zone=b")},
		{"V08 immediate, ordinal 0", threeZones, Question{ClaimName: "data-web-0", Immediate: true}, both("zone=a | zone=b | zone=c")},
		{"V09 immediate, ordinal 1", threeZones, Question{ClaimName: "data-web-1", Immediate: true}, answer{requisite: "zone=a | zone=b | zone=c", preferred: "zone=b | zone=c | zone=a"}},
		{"V10 immediate, ordinal 2", threeZones, Question{ClaimName: "data-web-2", Immediate: true}, answer{requisite: "zone=a | zone=b | zone=c", preferred: "zone=c | zone=a | zone=b"}},
		{"V11 immediate, another claim of ordinal 0", threeZones, Question{ClaimName: "logs-web-0", Immediate: true}, both("zone=a | zone=b | zone=c")},
		{"V12 neither selected nor immediate", threeZones, Question{ClaimName: "data-web-0"}, answer{}},
		{"V13 allowed alone", threeZones, Question{ClaimName: "data-web-0", Allowed: allow("zone=c,a")}, answer{requisite: "zone=a | zone=c", preferred: "zone=c | zone=a"}},
		{"V14 allowed, no nodes", nil, Question{ClaimName: "data-web-0", Immediate: true, Allowed: allow("zone=x")}, both("zone=x")},
		{"V15 immediate, no CSINode", []machine{{"n1", "zone=a", noCSINode}, {"n2", "zone=b", noCSINode}}, Question{Immediate: true}, answer{reason: NoTopology}},
		{"V16 immediate, CSINodes without keys", []machine{{"n1", "zone=a", ""}, {"n2", "zone=b", otherDriver}}, Question{Immediate: true}, answer{reason: NoTopology}},
		{"V17 immediate, no node labelled", []machine{{"n1", "", "zone"}, {"n2", "rack=1", "zone"}}, Question{Immediate: true}, answer{reason: NoTopology}},
		{"V18 immediate, one node labelled", []machine{{"n1", "zone=a", "zone"}, {"n2", "", "zone"}}, Question{Immediate: true}, both("zone=a")},
		{"V19 selected, no CSINode", with(threeZones, machine{"n2", "zone=b", noCSINode}), Question{SelectedNode: "n2", Strict: true}, answer{reason: NodeUnready, node: "n2"}},
		{"V20 selected, driver without keys", with(threeZones, machine{"n2", "zone=b", ""}), Question{SelectedNode: "n2", Strict: true}, answer{reason: NodeUnready, node: "n2"}},
		{"V21 selected, another driver", with(threeZones, machine{"n2", "zone=b", otherDriver}), Question{SelectedNode: "n2", Strict: true}, answer{reason: NodeUnready, node: "n2"}},
		{"V22 selected, label missing", with(threeZones, machine{"n2", "rack=1", "zone"}), Question{SelectedNode: "n2", Strict: true}, answer{reason: NodeUnready, node: "n2"}},
		{"V23 selected, Node gone", with(threeZones, machine{"n2", noNode, "zone"}), Question{SelectedNode: "n2", Strict: true}, answer{reason: NodeGone, node: "n2"}},
		{"V24 selected, Node and CSINode gone", with(threeZones, machine{"n2", noNode, noCSINode}), Question{SelectedNode: "n2", Strict: true}, answer{reason: NodeGone, node: "n2"}},
		{"V25 two keys, strict", racks, Question{SelectedNode: "n2", Strict: true}, both("rack=2 zone=a")},
		{"V27 two keys, strict, allowed by one", racks, Question{SelectedNode: "n2", Strict: true, Allowed: allow("zone=a")}, both("rack=2 zone=a")},
		{"V29 allowed by a label that is no key, strict", regional, Question{SelectedNode: "n1", Strict: true, Allowed: allow("region=r1")}, both("zone=a")},
		{"V30 allowed by a label that is no key, not strict", regional, Question{SelectedNode: "n2", Allowed: allow("region=r1")}, answer{requisite: "zone=a | zone=b", preferred: "zone=b | zone=a"}},
		{"V31 allowed by a key and a label, strict", regional, Question{SelectedNode: "n1", Strict: true, Allowed: allow("zone=a region=r1")}, both("zone=a")},
		{"V34 allowed terms of different length", racks, Question{ClaimName: "pvc", Allowed: allow("zone=a rack=1 | zone=b")}, both("zone=b | rack=1 zone=a")},
		{"V35 allowed is one empty term", threeZones, Question{ClaimName: "data-web-0", Immediate: true, Allowed: allow("")}, answer{}},
		{"V36 selected, strict, allowed is one empty term", threeZones, Question{SelectedNode: "n1", Strict: true, Allowed: allow("")}, answer{reason: Invalid}},
		{"V38 first expression without values", threeZones, Question{Immediate: true, Allowed: allow("rack= zone=a")}, answer{reason: Invalid}},
		{"V39 last expression without values", threeZones, Question{Immediate: true, Allowed: allow("zone=a rack=")}, answer{reason: Invalid}},
		{"V40 mixed keys, the others lack the selected node's", with(racks, machine{"n3", "zone=b", "zone"}), Question{SelectedNode: "n2"}, answer{requisite: "rack=1 zone=a | rack=2 zone=a", preferred: "rack=2 zone=a | rack=1 zone=a"}},
		{"V41 mixed keys, the others carry the selected node's", with(racks, machine{"n3", "zone=b rack=1", "zone"}), Question{SelectedNode: "n1"}, both("rack=1 zone=a | rack=1 zone=b | rack=2 zone=a")},
		{"V43 empty label", []machine{{"n1", "zone=", "zone"}}, Question{SelectedNode: "n1", Strict: true}, answer{reason: NodeUnready, node: "n1"}},
		{"V45 labels that outlived the driver", with(threeZones, machine{"n3", "zone=c", ""}), Question{ClaimName: "pvc", Immediate: true}, both("zone=a | zone=b")},
		{"V46 duplicate key in a term", threeZones, Question{Immediate: true, Allowed: allow("zone=a zone=b")}, answer{reason: Invalid}},
		{"V48 order is by length, then by label", racks, Question{ClaimName: "data-web-0", Allowed: allow("zone=b rack=1 | zone=c | zone=a rack=2")}, both("zone=c | rack=1 zone=b | rack=2 zone=a")},
	})
}

// TestKubeletVersionDoesNotMatter covers V49 and V50: a Node without CSINode
// is unready, whatever kubelet it runs.
func TestKubeletVersionDoesNotMatter(t *testing.T) {
	for id, version := range map[string]string{"V49": "v1.13.5", "V50": "garbage"} {
		t.Run(id, func(t *testing.T) {
			x := indexOf(threeZones...)
			obj := nodeObject("n2", "zone=b")
			obj.Status.NodeInfo.KubeletVersion = version
			x.SetNode(obj)
			x.DeleteCSINode("n2")
			checkAnswer(t, x, Question{SelectedNode: "n2", Strict: true}, answer{reason: NodeUnready, node: "n2"})
		})
	}
}

// TestAnIndexRemembersNoQuestion covers C1 to C5: each answer follows from the
// cluster as it is, whatever was asked of the same claim before.
func TestAnIndexRemembersNoQuestion(t *testing.T) {
	x := indexOf(threeZones...)
	ask := func(node string) Question { return Question{ClaimName: "data", SelectedNode: node, Strict: true} }
	t.Run("C1", func(t *testing.T) { checkAnswer(t, x, ask("n1"), both("zone=a")) })
	t.Run("C2", func(t *testing.T) { checkAnswer(t, x, ask("n2"), both("zone=b")) })
	x.DeleteNode("n2")
	t.Run("C3", func(t *testing.T) { checkAnswer(t, x, ask("n2"), answer{reason: NodeGone, node: "n2"}) })
	x.SetNode(nodeObject("n2", "rack=1"))
	t.Run("C4", func(t *testing.T) { checkAnswer(t, x, ask("n2"), answer{reason: NodeUnready, node: "n2"}) })
	x.DeleteNode("n2")
	x.DeleteCSINode("n2")
	t.Run("C5", func(t *testing.T) { checkAnswer(t, x, ask("n2"), answer{reason: NodeGone, node: "n2"}) })
}

func TestARelabelledNodeIsSeenAtOnce(t *testing.T) {
	x := indexOf(threeZones...)
	q := Question{ClaimName: "data-web-0", Immediate: true}
	checkAnswer(t, x, q, both("zone=a | zone=b | zone=c"))
	x.SetNode(nodeObject("n3", "zone=d"))
	checkAnswer(t, x, q, both("zone=a | zone=b | zone=d"))
	checkAnswer(t, x, Question{SelectedNode: "n3", Strict: true}, both("zone=d"))
}

func TestTwoZoneKeysMeanOneZone(t *testing.T) {
	all := "region=r1 wk=a zone=a | region=r1 wk=b zone=b | region=r1 wk=c zone=c"
	runQuestions(t, []question{
		{"strict: the node's whole term, though the class names one key", threeKeys,
			Question{SelectedNode: "n2", Strict: true, Allowed: allow("wk=b,c")}, both("region=r1 wk=b zone=b")},
		{"not strict: the node's whole term in the place of the class's", threeKeys,
			Question{SelectedNode: "n3", Allowed: allow("wk=b,c")}, answer{requisite: "wk=b | region=r1 wk=c zone=c", preferred: "region=r1 wk=c zone=c | wk=b"}},
		{"immediate: terms of the class that agree are one", threeKeys,
			Question{ClaimName: "data-web-1", Allowed: allow("zone=a | wk=a | wk=b | zone=c wk=c")}, answer{requisite: "wk=a | wk=b | wk=c zone=c", preferred: "wk=b | wk=c zone=c | wk=a"}},
		{"both keys in a term: the zones that they have in common", threeKeys,
			Question{ClaimName: "pvc", Allowed: allow("zone=a,b wk=b,c")}, both("wk=b zone=b")},
		{"both keys in a term without a common zone", threeKeys,
			Question{ClaimName: "pvc", Allowed: allow("zone=a wk=b")}, answer{reason: Invalid}},
		{"immediate: nodes of one zone with different keys are one term, the fullest",
			append([]machine{{"m1", "zone=a", "zone"}, {"m2", "wk=b", "wk"}}, threeKeys...),
			Question{ClaimName: "data-web-0", Immediate: true}, both(all)},
		{"immediate: a zone whose nodes have one key only still counts",
			append([]machine{{"m1", "zone=d", "zone"}, {"m2", "wk=e", "wk"}}, threeKeys...),
			Question{ClaimName: "m-0", Immediate: true}, answer{requisite: all + " | zone=d | wk=e", preferred: "wk=e | " + all + " | zone=d"}},
		{"immediate: of a zone's terms the one with more labels",
			append([]machine{{"m1", "zone=a region=r1", "zone region"}, {"m2", "wk=a", "wk"}}, threeKeys[1:]...),
			Question{ClaimName: "data-web-0", Immediate: true}, both("region=r1 zone=a | region=r1 wk=b zone=b | region=r1 wk=c zone=c")},
		{"a label that the driver does not report contradicts nothing", []machine{{"n1", "zone=a wk=x", "zone"}},
			Question{SelectedNode: "n1", Strict: true}, both("zone=a")},
		{"and does not count as the node's zone", []machine{{"n1", "zone=a wk=x", "zone"}},
			Question{SelectedNode: "n1", Strict: true, Allowed: allow("wk=x")}, answer{reason: NodeNotAllowed, node: "n1"}},
		{"not even in another node's keys", append([]machine{{"m1", "zone=d wk=x region=r1", "zone"}}, threeKeys...),
			Question{SelectedNode: "n1"}, both(all + " | region=r1 zone=d")},
		{"a node whose reported keys disagree is refused", with(threeKeys, machine{"n2", "zone=b wk=x region=r1", "zone wk region"}),
			Question{SelectedNode: "n2", Strict: true}, answer{reason: NodeMislabelled, node: "n2"}},
		{"and counts for nobody else", with(threeKeys, machine{"n2", "zone=b wk=x region=r1", "zone wk region"}),
			Question{SelectedNode: "n1"}, both("region=r1 wk=a zone=a | region=r1 wk=c zone=c")},
		{"a reported key without a label makes a node unready", with(threeKeys, machine{"n2", "zone=b wk= region=r1", "zone wk region"}),
			Question{SelectedNode: "n2", Strict: true}, answer{reason: NodeUnready, node: "n2"}},
	})
}

func TestAllowedTopologiesThatDescribeNodes(t *testing.T) {
	pools := []machine{
		{"n1", "zone=a wk=a region=r1 pool=x", "zone wk region"},
		{"n2", "zone=b wk=b region=r1 pool=y", "zone wk region"},
		{"n3", "zone=c wk=c region=r1 pool=x", "zone wk region"},
		{"n4", "zone=d wk=d region=r1 pool=x", ""},
	}
	a, b, c := "region=r1 wk=a zone=a", "region=r1 wk=b zone=b", "region=r1 wk=c zone=c"
	runQuestions(t, []question{
		{"immediate: the zones of the nodes that match, only where the driver is", pools,
			Question{ClaimName: "data-web-0", Allowed: allow("pool=x")}, answer{requisite: a + " | " + c, preferred: c + " | " + a}},
		{"immediate: none matches", pools, Question{Allowed: allow("pool=z")}, answer{reason: NoTopology}},
		{"immediate: no nodes at all", nil, Question{Allowed: allow("pool=x")}, answer{reason: NoTopology}},
		{"immediate: beside zones as given", pools,
			Question{ClaimName: "pvc", Allowed: allow("pool=y | wk=x")}, answer{requisite: b + " | wk=x", preferred: b + " | wk=x"}},
		{"immediate: a region is no zone, and a disk needs one", pools,
			Question{ClaimName: "data-web-0", Allowed: allow("region=r1")}, both(a + " | " + b + " | " + c)},
		{"immediate: the region beside a zone is sent as given", pools,
			Question{ClaimName: "pvc", Allowed: allow("zone=a region=r1")}, both("region=r1 zone=a")},
		{"immediate: nodes tell which zone is in which of the regions", with(pools, machine{"n2", "zone=b wk=b region=r2", "zone wk region"}),
			Question{ClaimName: "pvc", Allowed: allow("wk=a,b region=r1,r2")}, both(a + " | region=r2 wk=b zone=b")},
		{"immediate: all conditions of a term hold", pools,
			Question{ClaimName: "pvc", Allowed: allow("wk=a,b pool=x")}, both(a)},
		{"selected, not strict: the node's own term first", pools,
			Question{SelectedNode: "n3", Allowed: allow("pool=x")}, answer{requisite: a + " | " + c, preferred: c + " | " + a}},
		{"selected outside", pools, Question{SelectedNode: "n2", Strict: true, Allowed: allow("pool=x")}, answer{reason: NodeNotAllowed, node: "n2"}},
		{"selected, a wider term as given", racks,
			Question{SelectedNode: "n2", Allowed: allow("zone=b,a")}, both("zone=a | zone=b")},
	})
}

func TestExtraLabelsGoWithTheSelectedNode(t *testing.T) {
	nodes := with(threeKeys, machine{"n2", "zone=b wk=b region=r1 disk=available ssd=", "zone wk region"})
	a, b, c := "region=r1 wk=a zone=a", "disk=available region=r1 wk=b zone=b", "region=r1 wk=c zone=c"
	runQuestions(t, []question{
		{"strict", nodes, Question{SelectedNode: "n2", Strict: true, ExtraLabelPrefix: extraPrefix}, both(b)},
		{"not strict: in both lists", nodes, Question{SelectedNode: "n2", ExtraLabelPrefix: extraPrefix},
			answer{requisite: a + " | " + b + " | " + c, preferred: b + " | " + c + " | " + a}},
		{"not strict, allowed", nodes, Question{SelectedNode: "n2", Allowed: allow("wk=a,b"), ExtraLabelPrefix: extraPrefix},
			answer{requisite: "wk=a | " + b, preferred: b + " | wk=a"}},
		{"a node without such labels sets no limit", nodes, Question{SelectedNode: "n1", Strict: true, ExtraLabelPrefix: extraPrefix}, both(a)},
		{"no prefix", nodes, Question{SelectedNode: "n2", Strict: true}, both("region=r1 wk=b zone=b")},
		{"immediate", nodes, Question{ClaimName: "data-web-0", Immediate: true, ExtraLabelPrefix: extraPrefix}, both(a + " | region=r1 wk=b zone=b | " + c)},
	})
}

func TestMalformedAllowedTopologiesNameTheField(t *testing.T) {
	long := strings.Repeat("z", 64)
	expression := func(key string, values ...string) []corev1.TopologySelectorTerm {
		return []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: key, Values: values}}}}
	}
	rows := []struct {
		name    string
		allowed []corev1.TopologySelectorTerm
		want    []string
	}{
		{"duplicate key", allow("zone=a zone=b"), []string{"allowedTopologies[0].matchLabelExpressions[1].key", ZoneKey, "once"}},
		{"empty term among others", allow("zone=a |"), []string{"allowedTopologies[1].matchLabelExpressions", "remove it"}},
		{"two empty terms", allow("|"), []string{"allowedTopologies[0].matchLabelExpressions", "remove it"}},
		{"no values", allow("zone="), []string{"allowedTopologies[0].matchLabelExpressions[0].values", ZoneKey, "at least one"}},
		{"empty value", expression(ZoneKey, "a", ""), []string{"allowedTopologies[0].matchLabelExpressions[0].values[1]", ZoneKey, "empty"}},
		{"long value", expression(ZoneKey, long), []string{"allowedTopologies[0].matchLabelExpressions[0].values[0]", long, "63"}},
		{"no key", expression("", "a"), []string{"allowedTopologies[0].matchLabelExpressions[0].key"}},
		{"impossible key", expression("a b", "a"), []string{"allowedTopologies[0].matchLabelExpressions[0].key", "a b", "alphanumeric"}},
		{"zone keys disagree", allow("wk=b zone=a"), []string{"allowedTopologies[0].matchLabelExpressions", ZoneKey, WellKnownZoneKey, "in [a]", "in [b]"}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			// The class is at fault whatever the node is like.
			for _, node := range []string{"", "n1", "gone"} {
				checkAnswer(t, indexOf(threeZones...), Question{SelectedNode: node, Strict: true, Allowed: row.allowed}, answer{reason: Invalid, says: row.want})
			}
		})
	}
}

// A node without one of the labels that the driver reports there is unready when it is selected, and no zone counts for its sake (J):
// a volume that names its zone by that label could be used on no node.
func TestANodeThatLacksALabelAddsNoZone(t *testing.T) {
	for name, lacks := range map[string]machine{
		"the region":             {"n2", "zone=b wk=b", "zone wk region"},
		"the well-known label":   {"n2", "zone=b region=r1", "zone wk region"},
		"the driver's own label": {"n2", "wk=b region=r1", "zone wk region"},
	} {
		t.Run(name, func(t *testing.T) {
			x := indexOf(with(threeKeys, lacks)...)
			others := "region=r1 wk=a zone=a | region=r1 wk=c zone=c"
			checkAnswer(t, x, Question{ClaimName: "data-web-1", Immediate: true}, both(others))
			checkAnswer(t, x, Question{SelectedNode: "n1"}, both(others))
			checkAnswer(t, x, Question{SelectedNode: "n2"}, answer{reason: NodeUnready, node: "n2"})
		})
	}
}

func TestErrorsSayWhatIsWrong(t *testing.T) {
	odd := with(threeKeys, machine{"n2", "zone=b wk=x region=r1", "zone wk region"})
	runQuestions(t, []question{
		{"keys that disagree", odd, Question{SelectedNode: "n2"},
			answer{reason: NodeMislabelled, node: "n2", says: []string{`node "n2"`, ZoneKey + `="b"`, WellKnownZoneKey + `="x"`}}},
		{"missing labels", with(threeKeys, machine{"n2", "wk=b", "zone wk region"}), Question{SelectedNode: "n2"},
			answer{reason: NodeUnready, node: "n2", says: []string{`node "n2"`, ZoneKey, RegionKey, testDriver}}},
		{"driver absent", with(threeKeys, machine{"n2", "wk=b", otherDriver}), Question{SelectedNode: "n2"},
			answer{reason: NodeUnready, node: "n2", says: []string{`node "n2"`, testDriver, "register"}}},
		{"not allowed", threeKeys, Question{SelectedNode: "n1", Allowed: allow("wk=b,c | pool=x")},
			answer{reason: NodeNotAllowed, node: "n1", says: []string{`node "n1"`, `"a"`, WellKnownZoneKey + ` in [b c]`, shortKeys["pool"] + ` in [x]`}}},
		{"none matches", threeKeys, Question{Allowed: allow("pool=x")},
			answer{reason: NoTopology, says: []string{testDriver, shortKeys["pool"] + ` in [x]`}}},
		{"one empty term, strict", threeZones, Question{SelectedNode: "n1", Strict: true, Allowed: allow("")},
			answer{reason: Invalid, says: []string{"allowedTopologies[0].matchLabelExpressions", "matches no node", "remove it"}}},
		{"all nodes left out", []machine{odd[1], {"n9", "zone=b wk=y", "zone wk"}}, Question{Immediate: true},
			answer{reason: NoTopology, says: []string{`"n2"`, ZoneKey + `="b"`, WellKnownZoneKey + `="x"`}}},
	})
}

func TestCombinationsAreBoundedBeforeTheyAreBuilt(t *testing.T) {
	values := func(n int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf("v%02d", i))
		}
		return strings.Join(list, ",")
	}
	nodes := []machine{{"n1", "zone=v00 rack=v00 shelf=v00", "zone rack shelf"}}
	thousand := "zone=" + values(10) + " rack=" + values(10) + " shelf=" + values(10)
	if n := len(require(t, indexOf(nodes...), Question{Allowed: allow(thousand)}).Requisite); n != 1000 {
		t.Errorf("got %d terms, want 1000", n)
	}

	huge := allow("zone=" + values(10))
	keys := "zone"
	for i := range 40 {
		key := fmt.Sprintf("example.com/k%d", i)
		keys += " " + key
		huge[0].MatchLabelExpressions = append(huge[0].MatchLabelExpressions, allow(key + "=" + values(20))[0].MatchLabelExpressions...)
	}
	for name, allowed := range map[string][]corev1.TopologySelectorTerm{
		"one more term": allow(thousand + " | zone=v00"),
		"20 to the 40":  huge,
	} {
		t.Run(name, func(t *testing.T) {
			checkAnswer(t, indexOf(append(nodes, machine{"n2", "", keys})...), Question{Allowed: allowed}, answer{reason: Invalid, says: []string{"1000"}})
		})
	}

	// Nothing is built for a strict question, so nothing needs a bound.
	checkAnswer(t, indexOf(nodes...), Question{SelectedNode: "n1", Strict: true, Allowed: allow(thousand + " | zone=v00")}, both("rack=v00 shelf=v00 zone=v00"))
}
