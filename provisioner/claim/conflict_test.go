package claim

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/provisioner/watch"
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

func TestConflictMessage(t *testing.T) {
	seen := func(name string, claims ...string) *watch.Pod {
		return &watch.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Claims: claims}
	}
	for name, test := range map[string]struct {
		change func(*conflictFacts)
		want   string // in the message; empty for none
	}{
		"tied": {
			want: "Pod web-0 also has claim logs, whose volume d-logs is in zone-a, where no disk of class essd is available for claim data: " +
				"no other node is possible. The Pod starts when the zone has stock again. " +
				"Otherwise give claim data a class with other disk types, or move claim logs to another zone by a snapshot",
		},
		"no Pod waits":              {change: func(f *conflictFacts) { f.pods = nil }},
		"another Pod has the other": {change: func(f *conflictFacts) { f.pods[0].Claims = []string{"logs", "x"} }},
		"the Pod has no other":      {change: func(f *conflictFacts) { f.pods[0].Claims = []string{"data"} }},
		"the other is not bound":    {change: func(f *conflictFacts) { delete(f.volumes, "logs") }},
		"the other is not zonal":    {change: func(f *conflictFacts) { f.volumes["logs"] = boundVolume{name: "nfs"} }},
		"the other is elsewhere":    {change: func(f *conflictFacts) { f.zones = []string{"zone-b"} }},
		"refused in more zones":     {change: func(f *conflictFacts) { f.zones = []string{"zone-b", "zone-a"} }, want: "d-logs is in zone-a,"},
		"the other is in two zones": {
			change: func(f *conflictFacts) { f.volumes["logs"] = boundVolume{"d-logs", []string{"zone-a", "zone-b"}} },
		},
		"it was refused in both": {
			change: func(f *conflictFacts) {
				f.volumes["logs"], f.zones = boundVolume{"d-logs", []string{"zone-a", "zone-b"}}, []string{"zone-b", "zone-a"}
			},
			want: "d-logs is in zone-a and zone-b,",
		},
		"a third claim ties it": {
			change: func(f *conflictFacts) {
				f.pods[0].Claims = []string{"data", "logs", "more"}
				f.volumes["logs"], f.volumes["more"] = boundVolume{"d-logs", []string{"zone-b"}}, boundVolume{"d-more", []string{"zone-a"}}
			},
			want: "claim more, whose volume d-more is in zone-a,",
		},
		"the second Pod is tied": {
			change: func(f *conflictFacts) {
				f.pods = []*watch.Pod{seen("web-1", "data", "x"), seen("web-2", "data", "logs")}
			},
			want: "Pod web-2 also has claim logs",
		},
	} {
		t.Run(name, func(t *testing.T) {
			facts := conflictFacts{
				claim: "data", class: "essd", zones: []string{"zone-a"}, pods: []*watch.Pod{seen("web-0", "data", "logs")},
				volumes: map[string]boundVolume{"logs": {"d-logs", []string{"zone-a"}}},
			}
			if test.change != nil {
				test.change(&facts)
			}
			if got := conflictMessage(facts); (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
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
	for name, test := range map[string]struct {
		pod  *v1.Pod
		zone string
		want bool
	}{
		"tied":                      {podWith("web-0", "data", "logs"), "zone-a", true},
		"the other is elsewhere":    {podWith("web-0", "data", "logs"), "zone-b", false},
		"the other is not bound":    {podWith("web-0", "data", "new"), "zone-a", false},
		"the Pod has no other":      {podWith("web-0", "data"), "zone-a", false},
		"another Pod has the other": {podWith("web-0", "logs", "x"), "zone-a", false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, []answer{soldOut()}, test.pod)
			must(t, b.Claims.Add(testClaim(func(c *v1.PersistentVolumeClaim) { c.Name, c.UID, c.Spec.VolumeName = "logs", "other", "d-logs" })))
			must(t, b.Volumes.Add(testVolume("d-logs", func(pv *v1.PersistentVolume) {
				pv.Spec.ClaimRef.Name, pv.Spec.ClaimRef.UID = "logs", "other"
				pv.Spec.NodeAffinity = topology.NodeAffinity(made("d-logs", 0, test.zone).Volume.AccessibleTopology)
			})))
			for range 4 {
				_, _, _ = b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
			}
			if lists := b.podLists(); lists != 1 {
				t.Errorf("%d lists of Pods", lists)
			}
			events := b.said()
			for _, want := range []string{"ProvisioningTied", "Pod web-0", "claim logs", "d-logs is in zone-a", "for claim data", "by a snapshot"} {
				if strings.Contains(events, want) != test.want {
					t.Errorf("%q in %q: want %v", want, events, test.want)
				}
			}
			if strings.Count(events, "ProvisioningTied") > 1 {
				t.Error("it is reported more than once")
			}
		})
	}
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
