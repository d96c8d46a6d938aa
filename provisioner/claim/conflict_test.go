package claim

import (
	"fmt"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/topology"
)

// podWith returns a Pod with those claims, waiting for a node.
func podWith(name string, claims ...string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Status: v1.PodStatus{Phase: v1.PodPending}}
	for _, claim := range claims {
		source := v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{VolumeSource: source})
	}
	return pod
}

// podLists is how often Pods were listed.
func (b *bench) podLists() (lists int) {
	for _, action := range b.api.Actions() {
		if action.Matches("list", "pods") {
			lists++
		}
	}
	return lists
}

func TestAConflictIsReported(t *testing.T) {
	const tied = "Pod web-0 also has claim logs, whose volume d-logs is in zone-a, where no disk of class essd is available for claim data: " +
		"no other node is possible. The Pod starts when the zone has stock again. " +
		"Otherwise give claim data a class with other disk types, or move claim logs to another zone by a snapshot"
	for name, test := range map[string]struct {
		pods    []*v1.Pod
		logs    []string // the zones of the volume of claim logs
		more    []string // and of claim more
		refused []string // the zones where claim data was refused; zone-a alone if there are none
		want    string   // in the event; empty for none
	}{
		"tied":                      {pods: []*v1.Pod{podWith("web-0", "data", "logs")}, logs: []string{"zone-a"}, want: tied},
		"no Pod waits":              {logs: []string{"zone-a"}},
		"the other is elsewhere":    {pods: []*v1.Pod{podWith("web-0", "data", "logs")}, logs: []string{"zone-b"}},
		"the other is not zonal":    {pods: []*v1.Pod{podWith("web-0", "data", "logs")}},
		"the other is not bound":    {pods: []*v1.Pod{podWith("web-0", "data", "new")}, logs: []string{"zone-a"}},
		"the Pod has no other":      {pods: []*v1.Pod{podWith("web-0", "data")}, logs: []string{"zone-a"}},
		"another Pod has the other": {pods: []*v1.Pod{podWith("web-0", "logs", "x")}, logs: []string{"zone-a"}},
		"refused in more zones": {
			pods: []*v1.Pod{podWith("web-0", "data", "logs")}, logs: []string{"zone-a"}, refused: []string{"zone-b", "zone-a"}, want: "d-logs is in zone-a,",
		},
		"the other is in two zones": {pods: []*v1.Pod{podWith("web-0", "data", "logs")}, logs: []string{"zone-a", "zone-b"}},
		"it was refused in both": {
			pods: []*v1.Pod{podWith("web-0", "data", "logs")}, logs: []string{"zone-a", "zone-b"}, refused: []string{"zone-b", "zone-a"},
			want: "d-logs is in zone-a and zone-b,",
		},
		"a third claim ties it": {
			pods: []*v1.Pod{podWith("web-0", "data", "logs", "more")}, logs: []string{"zone-b"}, more: []string{"zone-a"},
			want: "claim more, whose volume d-more is in zone-a,",
		},
		"the second Pod is tied": {
			pods: []*v1.Pod{podWith("web-1", "data", "x"), podWith("web-2", "data", "logs")}, logs: []string{"zone-a"}, want: "Pod web-2 also has claim logs",
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, []answer{soldOut()})
			for _, pod := range test.pods {
				must(t, b.api.Tracker().Add(pod))
			}
			b.bound(t, "logs", test.logs)
			b.bound(t, "more", test.more)
			if test.refused != nil {
				b.zones.Requirement.Requisite = termsOf(test.refused)
			}
			for range 4 {
				_, _, _ = b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
			}
			if lists := b.podLists(); lists != 1 {
				t.Errorf("%d lists of Pods", lists)
			}
			want := 1
			if test.want == "" {
				want = 0
			}
			if events := b.said(); !strings.Contains(events, test.want) || strings.Count(events, "ProvisioningTied") != want {
				t.Errorf("%q is not told once in %q", test.want, events)
			}
		})
	}
}

// bound has the caches show a claim that is bound to a volume of those zones.
func (b *bench) bound(t *testing.T, claim string, zones []string) {
	t.Helper()
	must(t, b.Claims.Add(testClaim(func(c *v1.PersistentVolumeClaim) {
		c.Name, c.UID, c.Spec.VolumeName = claim, types.UID("uid-"+claim), "d-"+claim
	})))
	must(t, b.Volumes.Add(testVolume("d-"+claim, func(pv *v1.PersistentVolume) {
		pv.Spec.ClaimRef.Name, pv.Spec.ClaimRef.UID = claim, types.UID("uid-"+claim)
		pv.Spec.NodeAffinity = topology.NodeAffinity(termsOf(zones))
	})))
}

// termsOf returns a term for each zone.
func termsOf(zones []string) (terms []*csi.Topology) {
	for _, zone := range zones {
		terms = append(terms, &csi.Topology{Segments: map[string]string{topology.WellKnownZoneKey: zone}})
	}
	return terms
}

func TestPodsAreListedOncePerNamespace(t *testing.T) {
	b := newBench(t, []answer{soldOut()})
	for n := range 50 {
		for range 3 {
			_, _, _ = b.provision(t.Context(), claimOf(n, fmt.Sprint(20+n)+"Gi"), testClass(nil), "node-1")
		}
	}
	if lists := b.podLists(); lists != 1 {
		t.Errorf("%d lists of Pods", lists)
	}
}

// With Pods in a cache none are listed.
func TestAConflictIsFoundInTheCacheOfPods(t *testing.T) {
	g := newTogether(t, []answer{soldOut()}, podWith("web-0", "data", "logs"), podWith("web-1", "logs", "x"))
	g.claim("logs", func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "d-logs" })
	must(t, g.Volumes.Add(testVolume("d-logs", func(pv *v1.PersistentVolume) {
		pv.Spec.NodeAffinity = topology.NodeAffinity(made("d-logs", 0, "zone-a").Volume.AccessibleTopology)
	})))
	before := g.podLists()
	g.start(g.claim("data"))
	if events := g.said(); !strings.Contains(events, "ProvisioningTied Pod web-0 also has claim logs") {
		t.Errorf("events %q", events)
	}
	if lists := g.podLists() - before; lists != 0 {
		t.Errorf("Pods are listed %d times", lists)
	}
}
