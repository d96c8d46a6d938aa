package claim

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
	"github.com/topodisk/topodisk/topology"
)

// selecting returns a selector with one term for each list of a label's values.
func selecting(key string, values ...[]string) *v1.NodeSelector {
	selector := &v1.NodeSelector{}
	for _, of := range values {
		selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, v1.NodeSelectorTerm{
			MatchExpressions: []v1.NodeSelectorRequirement{{Key: key, Operator: v1.NodeSelectorOpIn, Values: of}}})
	}
	return selector
}

// waitingFor returns a Pod that waits for a node.
func waitingFor(name string, nodeSelector map[string]string, required *v1.NodeSelector, volumes ...*v1.PersistentVolume) waitingPod {
	return waitingPod{&watch.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, NodeSelector: nodeSelector, Required: required}, volumes}
}

// volumeAt returns a volume with an affinity, nil for none.
func volumeAt(name string, required *v1.NodeSelector) *v1.PersistentVolume {
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pv.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: required}
	return pv
}

func TestWhichPodsCanNotRunOnANode(t *testing.T) {
	const zone = topology.WellKnownZoneKey
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{zone: "zone-a", "pool": "db", "empty": ""}}}
	inB, inAOrB := selecting(zone, []string{"zone-b"}), selecting(zone, []string{"zone-b"}, []string{"zone-c", "zone-a"})
	named := func(name string) *v1.NodeSelector {
		return &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchFields: []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{name}}}}}}
	}
	one := func(nodeSelector map[string]string, required *v1.NodeSelector, volumes ...*v1.PersistentVolume) []waitingPod {
		return []waitingPod{waitingFor("web-0", nodeSelector, required, volumes...)}
	}
	unreadable := selecting(zone, []string{"zone-b"})
	unreadable.NodeSelectorTerms[0].MatchExpressions[0].Operator = "Like"
	long := selecting(zone, []string{"zone-b"}, []string{strings.Repeat("x", 60)}, []string{strings.Repeat("y", 60)})
	const opening = "no Pod that waits for the claim can run there; Pod web-0: "
	for name, test := range map[string]struct {
		pods []waitingPod
		want string // how the error begins; empty for none
	}{
		"no Pod":                        {nil, ""},
		"a Pod that may have any node":  {one(nil, nil), ""},
		"its nodeSelector has the node": {one(map[string]string{zone: "zone-a", "pool": "db", "empty": ""}, nil), ""},
		"its nodeSelector has another zone": {
			one(map[string]string{"pool": "db", zone: "zone-b"}, nil),
			opening + `its nodeSelector is "topology.kubernetes.io/zone=zone-b", the node's label is "zone-a"`,
		},
		"its nodeSelector has a missing label": {one(map[string]string{"gpu": ""}, nil), opening + `its nodeSelector is "gpu=", the node's label is ""`},
		"its affinity has the node":            {one(nil, inAOrB), ""},
		"its affinity has another zone":        {one(nil, inB), opening + `its required node affinity is "topology.kubernetes.io/zone In zone-b"`},
		"its affinity names the node":          {one(nil, named("node-1")), ""},
		"its affinity names another node":      {one(nil, named("node-2")), opening + `its required node affinity is "metadata.name In node-2"`},
		"its affinity can't be read":           {one(nil, unreadable), ""},
		"its affinity has no node":             {one(nil, &v1.NodeSelector{}), opening + "its required node affinity is"},
		"its affinity is long": {
			one(nil, long), opening + `its required node affinity is "topology.kubernetes.io/zone In zone-b or topology.kubernetes.io/zone In xxx`,
		},
		"its other volume is here": {one(nil, nil, volumeAt("d-logs", inAOrB)), ""},
		"its other volume is elsewhere": {
			one(nil, nil, volumeAt("d-x", nil), volumeAt("d-logs", inB)),
			opening + `its volume d-logs has the node affinity "topology.kubernetes.io/zone In zone-b"`,
		},
		"its other volume is anywhere": {one(nil, nil, &v1.PersistentVolume{}, volumeAt("d-logs", nil)), ""},
		"one Pod can't, another can":   {append(one(nil, inB), waitingFor("web-1", nil, inAOrB)), ""},
		"two can't, each for a reason": {append(one(nil, inB), waitingFor("web-1", map[string]string{"pool": "web"}, nil)), opening},
	} {
		t.Run(name, func(t *testing.T) {
			err := excluded(node, test.pods)
			if (err == nil) != (test.want == "") || err != nil && (!strings.HasPrefix(err.Error(), test.want) || len(err.Error()) > 250) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// onNodes says in which zones nodes are.
func (g *together) onNodes(zones map[string]string) *together {
	for name, zone := range zones {
		labels := map[string]string{topology.ZoneKey: zone, topology.WellKnownZoneKey: zone}
		must(g.t, g.Nodes.Add(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}))
	}
	return g
}

// podIn returns a Pod of those claims that is to run in a zone.
func podIn(zone, name string, claims ...string) *v1.Pod {
	pod := podWith(name, claims...)
	pod.Spec.NodeSelector = map[string]string{topology.WellKnownZoneKey: zone}
	return pod
}

func (g *together) selected(claim string) string {
	g.t.Helper()
	live, err := g.api.CoreV1().PersistentVolumeClaims("shop").Get(g.t.Context(), claim, metav1.GetOptions{})
	must(g.t, err)
	return live.Annotations[request.AnnSelectedNode]
}

func TestAClaimDoesNotStayWithANodeThatItsPodCanNotHave(t *testing.T) {
	ended := podIn("zone-b", "job-0", "data")
	ended.Status.Phase = v1.PodFailed
	going := podIn("zone-b", "web-9", "data")
	going.DeletionTimestamp, going.Finalizers = &metav1.Time{Time: benchStart}, []string{"example.com/held"}
	for name, test := range map[string]struct {
		pods     []*v1.Pod
		returned bool
	}{
		"no Pod":                      {nil, false},
		"its Pod can":                 {[]*v1.Pod{podIn("zone-a", "web-0", "data")}, false},
		"its Pod can't":               {[]*v1.Pod{podIn("zone-b", "web-0", "data")}, true},
		"one of two can":              {[]*v1.Pod{podIn("zone-b", "web-0", "data"), podIn("zone-a", "web-1", "data")}, false},
		"a Pod of another claim":      {[]*v1.Pod{podIn("zone-b", "web-0", "logs")}, false},
		"its Pod has ended":           {[]*v1.Pod{ended}, false},
		"its Pod is being deleted":    {[]*v1.Pod{going}, false},
		"one has ended, one can't":    {[]*v1.Pod{ended, podIn("zone-b", "web-0", "data")}, true},
		"another volume ties its Pod": {[]*v1.Pod{podWith("web-0", "data", "tied")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := newTogether(t, []answer{made("d-1", 20*gib, "zone-a")}, test.pods...).onNodes(map[string]string{"node-1": "zone-a"})
			must(t, g.Volumes.Add(volumeAt("d-tied", selecting(topology.WellKnownZoneKey, []string{"zone-b"}))))
			g.claim("tied", func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "d-tied" })
			g.start(g.claim("data"))
			creates, _ := g.driver.Calls()
			if returned := g.selected("data") == ""; returned != test.returned || creates == 0 != test.returned {
				t.Errorf("returned to the scheduler: %t, want %t; the driver was called %d times", returned, test.returned, creates)
			}
			events := g.said()
			if told := strings.Contains(events, `node "node-1": no Pod that waits for the claim can run there; Pod web-0: `); told != test.returned {
				t.Errorf("the events are\n%s", events)
			}
		})
	}
}

// A backup is restored claim by claim, and the Pods come last: the volume may be made before its Pod is there.
func TestAVolumeGoesIfThePodThatComesCanNotHaveIt(t *testing.T) {
	g := newTogether(t, []answer{made("d-1", 20*gib, "zone-a")}).onNodes(map[string]string{"node-1": "zone-a"})
	g.Driver = &hookedDriver{g.driver, "disk-data", func() {
		must(t, g.api.Tracker().Add(podIn("zone-b", "web-0", "data")))
		provisionertest.Eventually(t, "the Pod is seen", func() bool { return len(g.Pods.OfClaim("shop", "data")) > 0 })
	}}
	g.start(g.claim("data"))
	if _, deletes := g.driver.Calls(); deletes != 1 || g.savedVolumes() != 0 || g.selected("data") != "" {
		t.Errorf("%d volumes are deleted, %d are saved, node %q is selected", deletes, g.savedVolumes(), g.selected("data"))
	}
	if state := g.state("data"); state != "returned" {
		t.Errorf("the claim is %s", state)
	}
}
