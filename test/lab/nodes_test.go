package lab

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/topodisk/topodisk/topology"
)

func TestSixNodesAreTwoInEachZone(t *testing.T) {
	count := map[string]int{}
	for _, n := range SixNodes() {
		labels := n.node().Labels
		if labels[topology.WellKnownZoneKey] != n.Zone || labels[corev1.LabelHostname] != n.Name {
			t.Errorf("node %s has labels %v", n.Name, labels)
		}
		for _, key := range n.CSINode().Spec.Drivers[0].TopologyKeys {
			if labels[key] == "" && key != topology.ZoneKey { // which the plugin's registration adds
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

func TestAWatchThatTheServerEndsGoesOnWhereItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var from []string
		w, err := FollowFrom(t.Context(), "7", func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
			from = append(from, options.ResourceVersion)
			one := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 1})
			claim := Claim("default", "c", "class", "1Gi")
			claim.ResourceVersion = strconv.Itoa(10 * len(from))
			one.Add(claim)
			one.Stop()
			return one, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			<-w.ResultChan()
		}
		w.Stop()
		for range w.ResultChan() { // until it has ended
		}
		if want := []string{"7", "10", "20"}; !slices.Equal(from[:3], want) {
			t.Errorf("watched from %q, want %q", from, want)
		}
	})
}

func TestStoppedSelectionsKnowTheirOwnEndFromABreak(t *testing.T) {
	broken := &metav1.Status{Message: "too old resource version"}
	for _, c := range []struct {
		what string
		do   func(*watch.FakeWatcher, *Selections)
		fail bool
	}{
		{"nothing went wrong", func(*watch.FakeWatcher, *Selections) {}, false},
		{"the watch ended by itself", func(w *watch.FakeWatcher, s *Selections) { w.Stop(); <-s.ended }, true},
		{"the watch reported an error", func(w *watch.FakeWatcher, s *Selections) { w.Error(broken); w.Stop(); <-s.ended }, true},
	} {
		w := watch.NewFake()
		s := &Selections{watch: w, byPVC: map[string][]string{}, ended: make(chan struct{})}
		go s.follow()
		c.do(w, s)
		if err := s.Stop(); (err != nil) != c.fail {
			t.Errorf("%s: Stop says %v", c.what, err)
		}
	}
	late := &Selections{watch: watch.NewFake(), byPVC: map[string][]string{}, stopped: true}
	late.handle(watch.Event{Type: watch.Error, Object: broken})
	if late.err != nil {
		t.Errorf("an error that the stop itself brings about counts: %v", late.err)
	}
}
