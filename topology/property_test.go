package topology

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
)

// scenario is a cluster's history and a question, drawn from small alphabets
// so that nodes and classes meet often.
type scenario struct {
	events []event
	q      Question
}

// event changes one object. Events of one object come in order, those of
// different objects in any.
type event struct {
	node  string
	isCSI bool
	gone  bool
	text  string // labels or keys
}

func (e event) apply(x *Index) {
	switch {
	case e.isCSI && e.gone:
		x.DeleteCSINode(e.node)
	case e.isCSI:
		x.SetCSINode(csiNodeObject(e.node, e.text))
	case e.gone:
		x.DeleteNode(e.node)
	default:
		x.SetNode(nodeObject(e.node, e.text))
	}
}

// dice draws from a fuzzer's bytes; beyond their end it always draws zero.
type dice []byte

func (d *dice) below(n int) int {
	if len(*d) == 0 {
		return 0
	}
	b := (*d)[0]
	*d = (*d)[1:]
	return int(b) % n
}

func pick(d *dice, from ...string) string { return from[d.below(len(from))] }

func drawLabels(d *dice) string {
	zone := pick(d, "a", "b", "c", "a", "b", "c", "d", "")
	labels := " zone=" + zone + " wk=" + zone
	switch d.below(12) {
	case 0:
		labels = " zone=" + zone
	case 1:
		labels = " wk=" + zone
	case 2:
		labels = " zone=" + zone + " wk=" + pick(d, "a", "b", "")
	}
	labels += pick(d, " region=r1", " region=r1", " region=r1", " region=r1", " region=r2", "")
	return labels + pick(d, "", "", " rack=1", " rack=2") + pick(d, "", " pool=x", " pool=y") + pick(d, "", "", " disk=available", " ssd=available")
}

func drawKeys(d *dice) string {
	return pick(d, "zone wk region", "zone wk region", "zone wk region", "zone wk region", "zone", "zone", "wk", "zone wk", "zone rack", "wk region rack", "rack", "region", otherDriver, "")
}

func drawAllowed(d *dice) []corev1.TopologySelectorTerm {
	var terms []corev1.TopologySelectorTerm
	for range max(0, d.below(5)-1) {
		text := pick(d, "", "zone=a,b", "wk=a", "zone=b", "wk=c,b", "zone=a,b wk=b,c", "zone=c,c")
		text += pick(d, "", "", " region=r1", " region=r1,r2") + pick(d, "", "", " rack=1,2", " rack=2") + pick(d, "", "", " pool=x", " pool=x,y")
		if d.below(20) == 19 {
			text += " " + pick(d, "wk=", "zone=a", "wk=d", "pool=x")
		}
		if text == "" && d.below(8) != 7 {
			continue
		}
		terms = append(terms, allow(text)...)
	}
	return terms
}

func drawScenario(data []byte) scenario {
	d := (*dice)(&data)
	var s scenario
	s.q = Question{
		ClaimName:    pick(d, "data-web-0", "data-web-1", "data-web-2", "pvc", "", "-", "x--1"),
		SelectedNode: pick(d, "", "", "", "n0", "n1", "n2", "n3", "n4", "nobody"),
		Strict:       d.below(2) == 1,
		Immediate:    d.below(4) != 0,
	}
	s.q.ExtraLabelPrefix = pick(d, "", extraPrefix)
	s.q.Allowed = drawAllowed(d)
	for _, node := range []string{"n0", "n1", "n2", "n3", "n4"} {
		if len(*d) > 0 {
			s.events = append(s.events, event{node: node, text: drawLabels(d)}, event{node: node, isCSI: true, text: drawKeys(d)})
		}
	}
	for len(*d) > 0 && len(s.events) < 40 {
		e := event{node: pick(d, "n0", "n1", "n2", "n3", "n4"), isCSI: d.below(2) == 1, gone: d.below(16) == 15}
		draw := drawLabels
		if e.isCSI {
			draw = drawKeys
		}
		e.text = draw(d)
		s.events = append(s.events, e)
	}
	return s
}

// shuffled returns the events in another order that keeps each object's own.
func shuffled(events []event, random *rand.Rand) []event {
	type object struct {
		node  string
		isCSI bool
	}
	lines := map[object][]event{}
	var order []object
	for _, e := range events {
		o := object{e.node, e.isCSI}
		lines[o] = append(lines[o], e)
		order = append(order, o)
	}
	random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	out := make([]event, 0, len(events))
	for _, o := range order {
		out = append(out, lines[o][0])
		lines[o] = lines[o][1:]
	}
	return out
}

// fact is what the last events say of one node. It is worked out without the
// Index, so that the properties do not lean on what they test.
type fact struct {
	labels map[string]string // nil: no Node
	keys   []string          // empty: the driver is not there
}

func factsOf(events []event) map[string]fact {
	facts := map[string]fact{}
	for _, e := range events {
		f := facts[e.node]
		switch {
		case e.isCSI && e.gone:
			f.keys = nil
		case e.isCSI:
			f.keys = driverKeysOf(csiNodeObject(e.node, e.text), testDriver)
		case e.gone:
			f.labels = nil
		default:
			f.labels = labelsOf(e.text)
		}
		facts[e.node] = f
	}
	return facts
}

// usable reports whether the driver is there and its labels agree.
func (f fact) usable() bool {
	a, b := f.labels[ZoneKey], f.labels[WellKnownZoneKey]
	disagree := slices.Contains(f.keys, ZoneKey) && slices.Contains(f.keys, WellKnownZoneKey) && a != "" && b != "" && a != b
	return f.labels != nil && len(f.keys) > 0 && !disagree
}

func (f fact) complete() bool {
	return f.usable() && !slices.ContainsFunc(f.keys, func(k string) bool { return f.labels[k] == "" })
}

func (f fact) zone() string {
	for _, k := range []string{ZoneKey, WellKnownZoneKey} {
		if slices.Contains(f.keys, k) && f.labels[k] != "" {
			return f.labels[k]
		}
	}
	if a, b := f.labels[ZoneKey], f.labels[WellKnownZoneKey]; a == "" || b == "" || a == b {
		return max(a, b)
	}
	return ""
}

// carries reports whether every label of the topology is the node's, literally.
func (f fact) carries(t *csi.Topology) bool {
	for k, v := range t.GetSegments() {
		if v == "" || f.labels[k] != v {
			return false
		}
	}
	return len(t.GetSegments()) > 0
}

// liesIn is carries, but for the zone, which the node may spell in either key.
func (f fact) liesIn(t *csi.Topology) bool {
	for k, v := range t.GetSegments() {
		if IsZoneKey(k) && f.zone() != v || !IsZoneKey(k) && f.labels[k] != v {
			return false
		}
	}
	return true
}

// sameZone is liesIn, but for the region, of which a zone has only one: where
// nodes of one zone contradict each other, either will do.
func (f fact) sameZone(t *csi.Topology) bool {
	if f.zone() == "" {
		return f.liesIn(t)
	}
	rest := maps.Clone(t.GetSegments())
	delete(rest, RegionKey)
	return f.liesIn(&csi.Topology{Segments: rest})
}

func (f fact) admittedBy(allowed []corev1.TopologySelectorTerm) bool {
	return len(allowed) == 0 || slices.ContainsFunc(allowed, func(t corev1.TopologySelectorTerm) bool {
		return len(t.MatchLabelExpressions) > 0 && !slices.ContainsFunc(t.MatchLabelExpressions, func(e corev1.TopologySelectorLabelRequirement) bool {
			value := f.labels[e.Key]
			if IsZoneKey(e.Key) {
				value = f.zone()
			}
			return !slices.Contains(e.Values, value)
		})
	})
}

// spelledOutBy reports whether the class itself names the topology, key by key.
func spelledOutBy(allowed []corev1.TopologySelectorTerm, t *csi.Topology) bool {
	return slices.ContainsFunc(allowed, func(a corev1.TopologySelectorTerm) bool {
		return len(a.MatchLabelExpressions) == len(t.GetSegments()) && !slices.ContainsFunc(a.MatchLabelExpressions, func(e corev1.TopologySelectorLabelRequirement) bool {
			return !slices.Contains(e.Values, t.GetSegments()[e.Key])
		})
	})
}

// checkScenario holds every property that an answer has, whatever the question.
func checkScenario(t *testing.T, data []byte) (answered bool) {
	t.Helper()
	s := drawScenario(slices.Clone(data))
	x := NewIndex(testDriver)
	for _, e := range s.events {
		e.apply(x)
	}
	req, err := x.Require(s.q)
	wire := bytesOf(t, req, err)
	checkDeterminism(t, s, x, wire, data)
	facts := factsOf(s.events)
	checkReason(t, s.q, facts, err)
	if req == nil {
		return false
	}
	checkOrder(t, req)
	checkCarried(t, s.q, facts, req)
	checkNodeFirst(t, s.q, facts, req)
	checkComplete(t, s.q, facts, req)
	return true
}

// checkDeterminism: the same cluster and question give the same bytes, whatever
// the order of events and whatever was asked in between.
func checkDeterminism(t *testing.T, s scenario, x *Index, want string, data []byte) {
	t.Helper()
	if req, err := x.Require(s.q); bytesOf(t, req, err) != want {
		t.Fatalf("the second answer differs from the first: %v, %v", req, err)
	}
	var seed [8]byte
	copy(seed[:], data)
	random := rand.New(rand.NewPCG(binary.LittleEndian.Uint64(seed[:]), 1))
	for round := range 3 {
		y := NewIndex(testDriver)
		for _, e := range shuffled(s.events, random) {
			e.apply(y)
			if round == 1 {
				y.Require(s.q) // its views now live through the rest of the events
				y.Require(Question{Immediate: true})
			}
		}
		if req, err := y.Require(s.q); bytesOf(t, req, err) != want {
			t.Fatalf("another order of events (round %d) changed the answer to %v, %v; it was %q", round, req, err, want)
		}
	}
}

// checkReason: an error has a Reason that the cluster bears out.
func checkReason(t *testing.T, q Question, facts map[string]fact, err error) {
	t.Helper()
	f := facts[q.SelectedNode]
	reason, ok := ReasonOf(err)
	if (err != nil) != ok {
		t.Fatalf("error without a reason: %v", err)
	}
	sound := map[Reason]bool{
		0:              q.SelectedNode == "" || f.complete(),
		NodeGone:       f.labels == nil,
		NodeUnready:    f.labels != nil && !f.complete(),
		NodeNotAllowed: f.complete() && !f.admittedBy(q.Allowed),
		NoTopology:     q.SelectedNode == "",
		Invalid:        len(q.Allowed) > 0,

		NodeMislabelled: f.labels != nil && len(f.keys) > 0 && !f.usable(),
	}
	if !sound[reason] {
		t.Fatalf("reason %q (error %v) does not fit node %+v and class %v", reason, err, f, q.Allowed)
	}
}

// checkOrder: preferred is a rotation of requisite, in which no place comes twice.
func checkOrder(t *testing.T, req *csi.TopologyRequirement) {
	t.Helper()
	seen := map[string]bool{}
	for _, r := range req.Requisite {
		id := termOf(r.Segments).identity
		if len(r.Segments) == 0 || seen[id] {
			t.Fatalf("requisite has an empty term or one place twice: %s", show(req.Requisite))
		}
		seen[id] = true
	}
	for i := range req.Requisite {
		rotated := slices.Concat(req.Requisite[i:], req.Requisite[:i])
		if show(rotated) == show(req.Preferred) {
			return
		}
	}
	t.Fatalf("preferred %s is no rotation of requisite %s", show(req.Preferred), show(req.Requisite))
}

// withoutExtra takes the labels away that a question adds to the first term.
func withoutExtra(q Question, t *csi.Topology) *csi.Topology {
	out := &csi.Topology{Segments: map[string]string{}}
	for k, v := range t.GetSegments() {
		if q.ExtraLabelPrefix == "" || !strings.HasPrefix(k, extraPrefix) {
			out.Segments[k] = v
		}
	}
	return out
}

// checkCarried: every term is spelled out by the class, or carried, label for
// label, by a node that has the driver and that the class admits.
func checkCarried(t *testing.T, q Question, facts map[string]fact, req *csi.TopologyRequirement) {
	t.Helper()
	for _, r := range req.Requisite {
		bare := withoutExtra(q, r)
		carried := spelledOutBy(q.Allowed, bare)
		for _, f := range facts {
			carried = carried || f.usable() && f.carries(bare) && f.admittedBy(q.Allowed)
		}
		if !carried {
			t.Fatalf("term %s is neither carried by a node nor allowed by the class %v; nodes %+v", show([]*csi.Topology{r}), q.Allowed, facts)
		}
	}
}

// checkNodeFirst: the selected node lies in the first term, which has its extra
// labels; strict means that there is no other.
func checkNodeFirst(t *testing.T, q Question, facts map[string]fact, req *csi.TopologyRequirement) {
	t.Helper()
	if q.SelectedNode == "" {
		return
	}
	f, first := facts[q.SelectedNode], req.Preferred[0]
	if !f.liesIn(first) {
		t.Fatalf("the first term %s is not the selected node's: %+v", show(req.Preferred[:1]), f)
	}
	for k, v := range f.labels {
		if q.ExtraLabelPrefix != "" && strings.HasPrefix(k, extraPrefix) && first.Segments[k] != v {
			t.Fatalf("the first term %s lacks the node's label %s=%s", show(req.Preferred[:1]), k, v)
		}
	}
	if q.Strict && (len(req.Preferred) != 1 || !f.carries(first)) {
		t.Fatalf("a strict answer is %s, want the node's labels alone: %+v", show(req.Preferred), f)
	}
}

// checkComplete: without a class, no zone is missing of which a ready node
// reports the same keys as the selected one.
func checkComplete(t *testing.T, q Question, facts map[string]fact, req *csi.TopologyRequirement) {
	t.Helper()
	if len(q.Allowed) > 0 || q.SelectedNode == "" || q.Strict {
		return
	}
	for name, f := range facts {
		if !f.complete() || !slices.Equal(f.keys, facts[q.SelectedNode].keys) {
			continue
		}
		if !slices.ContainsFunc(req.Requisite, func(r *csi.Topology) bool { return f.sameZone(withoutExtra(q, r)) }) {
			t.Fatalf("requisite %s leaves out node %s: %+v", show(req.Requisite), name, f)
		}
	}
}

func randomBytes(random *rand.Rand, size int) []byte {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	return data
}

func TestEveryAnswerKeepsItsPromises(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 11))
	answered := 0
	for range 600 {
		if checkScenario(t, randomBytes(random, 60+random.IntN(140))) {
			answered++
		}
	}
	if answered < 200 {
		t.Errorf("only %d of 600 scenarios had an answer with terms; they test too little", answered)
	}
}

func FuzzRequire(f *testing.F) {
	random := rand.New(rand.NewPCG(3, 5))
	for _, size := range []int{0, 1, 8, 40, 120, 300} {
		f.Add(randomBytes(random, size))
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkScenario(t, data) })
}

// FuzzRequireOfAnyClass feeds keys and values that no API server would let pass.
func FuzzRequireOfAnyClass(f *testing.F) {
	f.Add("zone", "a", "rack", "1", "n1", true)
	f.Add("", "", "", "", "", false)
	f.Add(ZoneKey, "a", WellKnownZoneKey, "b", "n1", false)
	f.Add(ZoneKey, "a\x00b", ZoneKey, "a", "n2", true)
	f.Fuzz(func(t *testing.T, key1, value1, key2, value2, node string, strict bool) {
		x := indexOf(threeKeys...)
		obj := nodeObject("odd", "zone=a wk=a region=r1")
		obj.Labels[key1], obj.Labels[key2] = value1, value2
		x.SetNode(obj)
		x.SetCSINode(csiNodeObject("odd", "zone wk region"))
		q := Question{ClaimName: value1, SelectedNode: node, Strict: strict, Immediate: true, ExtraLabelPrefix: key2}
		for _, expressions := range [][]corev1.TopologySelectorLabelRequirement{
			nil,
			{{Key: key1, Values: []string{value1}}},
			{{Key: key1, Values: []string{value1, value2}}, {Key: key2, Values: []string{value2}}},
		} {
			if expressions != nil {
				q.Allowed = append(q.Allowed, corev1.TopologySelectorTerm{MatchLabelExpressions: expressions})
			}
			req, err := x.Require(q)
			if err == nil && req != nil {
				checkOrder(t, req)
			}
			if _, ok := ReasonOf(err); err != nil && !ok {
				t.Fatalf("error without a reason: %v", err)
			}
		}
	})
}

func FuzzNodeAffinity(f *testing.F) {
	f.Add("zone", "a", "rack", "1")
	f.Add("", "", "", "")
	f.Fuzz(func(t *testing.T, key1, value1, key2, value2 string) {
		list := []*csi.Topology{
			nil, {},
			{Segments: map[string]string{key1: value1}},
			{Segments: map[string]string{key2: value2, key1: value1}},
			{Segments: map[string]string{key1: value1}},
		}
		affinity := NodeAffinity(list)
		terms := affinity.Required.NodeSelectorTerms
		if len(terms) < 1 || len(terms) > 2 {
			t.Fatalf("got %d terms of two different topologies", len(terms))
		}
		for _, term := range terms {
			if len(term.MatchExpressions) == 0 || !slices.IsSortedFunc(term.MatchExpressions, func(a, b corev1.NodeSelectorRequirement) int {
				return strings.Compare(a.Key, b.Key)
			}) {
				t.Fatalf("term %+v is empty or unsorted", term)
			}
		}
	})
}
