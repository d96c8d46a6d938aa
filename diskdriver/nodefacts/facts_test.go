package nodefacts

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/diskdriver/disk"
)

func TestANodeNamesItsInstance(t *testing.T) {
	for _, test := range []struct {
		provider, label string
		id, region      string
	}{
		{"cn-hangzhou.i-bp1a2b3c", "", "i-bp1a2b3c", "cn-hangzhou"},
		{"alicloud://cn-hangzhou.i-bp1a2b3c", "", "i-bp1a2b3c", "cn-hangzhou"},
		{"alicloud://cn-hangzhou/i-bp1a2b3c", "", "i-bp1a2b3c", "cn-hangzhou"},
		{"ap-southeast-1.i-t4n", "i-other", "i-t4n", "ap-southeast-1"},
		{"", "i-bp1a2b3c", "i-bp1a2b3c", ""},
		{"", "e01-cn-abc", "", ""},
		{"", "", "", ""},
		{"aws:///us-east-1a/i-0abcdef", "", "", ""},
		{"gce://project/zone/instance", "i-bp1a2b3c", "", ""},
		{"cn-hangzhou.eci-bp1", "", "", ""},
		{"cn-hangzhou.i-", "", "", ""},
	} {
		node := &corev1.Node{Spec: corev1.NodeSpec{ProviderID: test.provider}}
		node.Labels = map[string]string{disk.InstanceLabel: test.label}
		if id, region := identify(node); string(id) != test.id || region != test.region {
			t.Errorf("%q, label %q: got %q of %q, want %q of %q", test.provider, test.label, id, region, test.id, test.region)
		}
	}
}

// nodeWithFacts returns a Node of instance i-1 that has been booted as b2.
func nodeWithFacts(text string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u1"}, Spec: corev1.NodeSpec{ProviderID: "cn-hangzhou.i-1"}}
	node.Status.NodeInfo.BootID = "b2"
	if text != "" {
		node.Annotations = map[string]string{Annotation: text}
	}
	return node
}

func TestFactsHoldForTheInstanceAsItRunsNow(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want bool
	}{
		"none":             {"", false},
		"of this boot":     {`{"instance":"i-1","boot":"b2","type":"ecs.g7.large","zone":"cn-hangzhou-h"}`, true},
		"of another boot":  {`{"instance":"i-1","boot":"b1","type":"ecs.g7.large","zone":"cn-hangzhou-h"}`, false},
		"of no boot":       {`{"instance":"i-1","type":"ecs.g7.large","zone":"cn-hangzhou-h"}`, false},
		"another instance": {`{"instance":"i-2","boot":"b2","type":"ecs.g7.large","zone":"cn-hangzhou-h"}`, false},
		"without a type":   {`{"instance":"i-1","boot":"b2","zone":"cn-hangzhou-h"}`, false},
		"no JSON":          {`{"instance":`, false},
		"another JSON":     {`[16]`, false},
	} {
		if _, got := Of(nodeWithFacts(test.text)); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestFactsOfOneBootServeTheNextIfTheTypeIsTheSame(t *testing.T) {
	old := Facts{Instance: "i-1", Boot: "b1", Type: "ecs.g7.large", Zone: "cn-hangzhou-h", DataDisks: 16, Takes: []disk.Category{"cloud_essd"}, Refuses: []disk.Category{"cloud_ssd"}}
	kept := old
	kept.Boot = "b2"
	for name, test := range map[string]struct {
		now  disk.Instance
		want Facts
	}{
		"nothing new is known": {disk.Instance{Type: "ecs.g7.large", Zone: "cn-hangzhou-h"}, kept},
		"more is known": {
			disk.Instance{Type: "ecs.g7.large", Zone: "cn-hangzhou-h", DataDisks: 30, Takes: []disk.Category{"cloud_auto", "cloud_essd"}},
			Facts{Instance: "i-1", Boot: "b2", Type: "ecs.g7.large", Zone: "cn-hangzhou-h", DataDisks: 30, Takes: []disk.Category{"cloud_auto", "cloud_essd"}},
		},
		"another type, of which nothing is known": {
			disk.Instance{Type: "ecs.g8i.large", Zone: "cn-hangzhou-h"},
			Facts{Instance: "i-1", Boot: "b2", Type: "ecs.g8i.large", Zone: "cn-hangzhou-h"},
		},
	} {
		if diff := cmp.Diff(test.want, old.updated("i-1", "b2", test.now)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if got := old.updated("i-2", "b2", disk.Instance{Type: "ecs.g7.large", Zone: "cn-hangzhou-h"}); got.DataDisks != 0 || got.Takes != nil {
		t.Errorf("another instance inherits %+v", got)
	}
}

func TestAPatchSaysWhatIsMissingAndNoMore(t *testing.T) {
	facts := Facts{Instance: "i-1", Boot: "b2", Type: "ecs.g7.large", Zone: "cn-hangzhou-h", Takes: []disk.Category{"cloud_auto", "cloud_essd", "Odd/one"}, Refuses: []disk.Category{"cloud_ssd", "cloud_efficiency"}}
	const auto, essd, ssd, efficiency = disk.NodeTypeLabel + "cloud_auto", disk.NodeTypeLabel + "cloud_essd", disk.NodeTypeLabel + "cloud_ssd", disk.NodeTypeLabel + "cloud_efficiency"
	annotations, err := json.Marshal(map[string]string{Annotation: facts.text()})
	if err != nil {
		t.Fatal(err)
	}
	annotated := `"annotations":` + string(annotations)
	for name, test := range map[string]struct {
		labels map[string]string
		text   string
		want   string // of the patch's metadata, beside the UID; empty: none is needed
	}{
		"a new node":               {nil, "", `"labels":{"` + auto + `":"available","` + essd + `":"available"},` + annotated},
		"nothing new":              {map[string]string{auto: available, essd: available}, facts.text(), ``},
		"a category is missing":    {map[string]string{auto: available}, facts.text(), `"labels":{"` + essd + `":"available"}`},
		"a category is refused":    {map[string]string{auto: available, essd: available, ssd: available}, facts.text(), `"labels":{"` + ssd + `":null}`},
		"somebody bars a category": {map[string]string{auto: "barred", essd: available, efficiency: "unknown"}, facts.text(), ``},
		"a category of which nothing is known": {
			map[string]string{auto: available, essd: available, disk.NodeTypeLabel + "cloud": available}, facts.text(), ``,
		},
		"older facts": {map[string]string{auto: available, essd: available}, `{"instance":"i-1"}`, annotated},
	} {
		node := nodeWithFacts(test.text)
		node.Labels = test.labels
		want := ""
		if test.want != "" {
			want = `{"metadata":{"uid":"u1",` + test.want + `}}`
		}
		if patch, needed := patchOf(node, facts, true); needed != (want != "") || string(patch) != want {
			t.Errorf("%s: needed %v, patch %s, want %s", name, needed, patch, want)
		}
	}
}

func TestTheCacheKeepsWhatIsReadHere(t *testing.T) {
	node := nodeWithFacts(`{"instance":"i-1"}`)
	node.ResourceVersion = "7"
	node.Annotations["else"] = "x"
	node.Labels = map[string]string{disk.NodeTypeLabel + "cloud_auto": available, disk.InstanceLabel: "i-1", "else": "x"}
	node.Status.Images = []corev1.ContainerImage{{Names: []string{"large"}}}
	object, err := trim(node)
	if err != nil {
		t.Fatal(err)
	}
	want := nodeWithFacts(`{"instance":"i-1"}`)
	want.ResourceVersion = "7"
	want.Labels = map[string]string{disk.NodeTypeLabel + "cloud_auto": available, disk.InstanceLabel: "i-1"}
	if diff := cmp.Diff(want, object); diff != "" {
		t.Errorf("cached (-want +got):\n%s", diff)
	}
}
