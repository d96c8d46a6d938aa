package topology

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const testDriver = "diskplugin.csi.alibabacloud.com"

// shortKeys are what the tests call the keys.
var shortKeys = map[string]string{
	"zone":   ZoneKey,
	"wk":     WellKnownZoneKey,
	"region": RegionKey,
	"rack":   "example.com/rack",
	"shelf":  "example.com/shelf",
	"pool":   "example.com/pool",
	"disk":   "node.csi.alibabacloud.com/disktype.cloud_essd",
	"ssd":    "node.csi.alibabacloud.com/disktype.cloud_ssd",
}

const extraPrefix = "node.csi.alibabacloud.com/disktype."

func longKey(short string) string {
	if long, ok := shortKeys[short]; ok {
		return long
	}
	return short
}

func shortKey(long string) string {
	for short, l := range shortKeys {
		if l == long {
			return short
		}
	}
	return long
}

// machine is a node of a test's cluster.
type machine struct {
	name   string
	labels string // "zone=a rack=1"; noNode: there is no Node
	keys   string // "zone rack"; "": the driver has no keys; otherDriver, noCSINode
}

const (
	noNode      = "(no Node)"
	noCSINode   = "(no CSINode)"
	otherDriver = "(another driver)"
)

func labelsOf(text string) map[string]string {
	labels := map[string]string{}
	for _, pair := range strings.Fields(text) {
		k, v, _ := strings.Cut(pair, "=")
		labels[longKey(k)] = v
	}
	return labels
}

func nodeObject(name, labels string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labelsOf(labels)}}
}

func csiNodeObject(name, keys string) *storagev1.CSINode {
	driver := storagev1.CSINodeDriver{Name: testDriver, NodeID: name}
	if keys == otherDriver {
		driver.Name, keys = "other.example.com", "zone"
	}
	for _, k := range strings.Fields(keys) {
		driver.TopologyKeys = append(driver.TopologyKeys, longKey(k))
	}
	obj := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	obj.Spec.Drivers = append(obj.Spec.Drivers, driver)
	return obj
}

func indexOf(machines ...machine) *Index {
	x := NewIndex(testDriver)
	for _, m := range machines {
		if m.labels != noNode {
			x.SetNode(nodeObject(m.name, m.labels))
		}
		if m.keys != noCSINode {
			x.SetCSINode(csiNodeObject(m.name, m.keys))
		}
	}
	return x
}

// allow reads allowedTopologies from "zone=a,b rack=1 | zone=c".
func allow(text string) []corev1.TopologySelectorTerm {
	var terms []corev1.TopologySelectorTerm
	for t := range strings.SplitSeq(text, "|") {
		var term corev1.TopologySelectorTerm
		for _, e := range strings.Fields(t) {
			k, v, _ := strings.Cut(e, "=")
			req := corev1.TopologySelectorLabelRequirement{Key: longKey(k)}
			if v != "" {
				req.Values = strings.Split(v, ",")
			}
			term.MatchLabelExpressions = append(term.MatchLabelExpressions, req)
		}
		terms = append(terms, term)
	}
	return terms
}

// show writes topologies as "zone=a rack=1 | zone=b", keys sorted.
func show(list []*csi.Topology) string {
	var terms []string
	for _, t := range list {
		var labels []string
		for k, v := range t.GetSegments() {
			labels = append(labels, shortKey(k)+"="+v)
		}
		slices.Sort(labels)
		terms = append(terms, strings.Join(labels, " "))
	}
	return strings.Join(terms, " | ")
}

// bytesOf returns an answer as it would go over the wire.
func bytesOf(t *testing.T, req *csi.TopologyRequirement, err error) string {
	t.Helper()
	if err != nil {
		return "error: " + err.Error()
	}
	if req == nil {
		return "no constraint"
	}
	wire, err := proto.MarshalOptions{Deterministic: true}.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	return string(wire)
}

// answer is what a test expects of Require: a Reason, or both lists, or none.
type answer struct {
	requisite, preferred string
	reason               Reason
	node                 string
	says                 []string // among the error's words
}

// require is an answer of an Index that is no error. It is no test helper, for that costs allocations.
func require(tb testing.TB, x *Index, q Question) *csi.TopologyRequirement {
	req, err := x.Require(q)
	if err != nil {
		tb.Fatalf("%+v: %v", q, err)
	}
	return req
}

func checkAnswer(t *testing.T, x *Index, q Question, want answer) {
	t.Helper()
	req, err := x.Require(q)
	if want.reason != 0 {
		got, ok := ReasonOf(err)
		if !ok || got != want.reason {
			t.Fatalf("got %v and error %v, want an error for %q", req, err, want.reason)
		}
		var e *Error
		if errors.As(err, &e); e.Node != want.node {
			t.Errorf("the error names node %q, want %q: %v", e.Node, want.node, err)
		}
		for _, part := range want.says {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("error %q does not name %q", err, part)
			}
		}
		return
	}
	if err != nil {
		t.Fatalf("got error %v, want %+v", err, want)
	}
	if want.requisite == "" {
		if req != nil {
			t.Fatalf("got %v, want no constraint", req)
		}
		return
	}
	if req == nil {
		t.Fatalf("got no constraint, want %+v", want)
	}
	if got := show(req.Requisite); got != want.requisite {
		t.Errorf("requisite is %q, want %q", got, want.requisite)
	}
	if got := show(req.Preferred); got != want.preferred {
		t.Errorf("preferred is %q, want %q", got, want.preferred)
	}
}
