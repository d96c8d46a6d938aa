package provisioner

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/topodisk/topodisk/provisioner/attempt"
	"github.com/topodisk/topodisk/provisioner/csiconn"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/topology"
)

func refused(code codes.Code) answer { return answer{err: status.Error(code, "no")} }

func TestACallNotSentChangesNothing(t *testing.T) {
	away := answer{err: &csiconn.NotAsked{Err: status.Error(codes.Unavailable, "the driver is not back")}}
	for name, test := range map[string]struct {
		answers []answer
		open    int // volumes left under way after the call that was not made
		last    attempt.Outcome
	}{
		"the first one":          {[]answer{away, soldOutAnswer()}, 0, attempt.Reschedule},
		"after an unknown one":   {[]answer{unavailable(), away, refused(codes.InvalidArgument)}, 1, attempt.Finished},
		"after a final refusal":  {[]answer{refused(codes.Internal), away, soldOutAnswer()}, 0, attempt.Reschedule},
		"after one that is lost": {[]answer{{}, away, refused(codes.InvalidArgument)}, 1, attempt.Finished},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, test.answers)
			for i := range test.answers {
				_, outcome, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
				switch {
				case i == len(test.answers)-1:
					if outcome != test.last {
						t.Errorf("the last one: got %v, want %v", outcome, test.last)
					}
				case csiconn.IsNotAsked(test.answers[i].err):
					if all := b.open(); outcome != attempt.Unchanged || status.Code(err) != codes.Unavailable || all != test.open {
						t.Errorf("got %v, %v; %d volumes are under way, want %d", outcome, err, all, test.open)
					}
				}
			}
		})
	}
}

func TestOutcomeOfTopology(t *testing.T) {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	tests := map[string]struct {
		reason  topology.Reason
		nodes   []runtime.Object
		waited  time.Duration
		outcome attempt.Outcome
	}{
		"the class is malformed":                     {reason: topology.Invalid, outcome: attempt.Unchanged},
		"the class does not allow the node":          {reason: topology.NodeNotAllowed, outcome: attempt.Reschedule},
		"the labels of the node disagree":            {reason: topology.NodeMislabelled, outcome: attempt.Reschedule},
		"no node is known yet":                       {reason: topology.NoTopology, waited: time.Hour, outcome: attempt.Unchanged},
		"the node is gone":                           {reason: topology.NodeGone, outcome: attempt.Reschedule},
		"the cache lags, the node is there":          {reason: topology.NodeGone, nodes: []runtime.Object{node}, outcome: attempt.Unchanged},
		"the driver may be about to register":        {reason: topology.NodeUnready, nodes: []runtime.Object{node}, waited: 59 * time.Second, outcome: attempt.Unchanged},
		"the driver never came":                      {reason: topology.NodeUnready, nodes: []runtime.Object{node}, waited: time.Minute, outcome: attempt.Reschedule},
		"the node is there, its CSINode never comes": {reason: topology.NodeGone, nodes: []runtime.Object{node}, waited: time.Minute, outcome: attempt.Reschedule},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil, test.nodes...)
			b.zones.err = &topology.Error{Reason: test.reason, Node: "node-1"}
			claim := testClaim()
			_, outcome, err := b.provision(t.Context(), claim, testClass(nil), "node-1")
			if test.waited > 0 {
				if outcome != attempt.Unchanged {
					t.Fatalf("at first: got %v", outcome)
				}
				b.clock = b.clock.Add(test.waited)
				_, outcome, err = b.provision(t.Context(), claim, testClass(nil), "node-1")
			}
			if err == nil || outcome != test.outcome {
				t.Errorf("got %v and %v, want %v and an error", outcome, err, test.outcome)
			}
			if creates, _ := b.driver.calls(); creates != 0 {
				t.Errorf("the driver was asked %d times", creates)
			}
		})
	}
}

func TestAnotherSelectedNodeRestartsTheGrace(t *testing.T) {
	b := newBench(t, nil, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}})
	b.zones.err = &topology.Error{Reason: topology.NodeUnready}
	_, _, _ = b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
	b.clock = b.clock.Add(time.Hour)
	if _, outcome, _ := b.provision(t.Context(), testClaim(), testClass(nil), "node-2"); outcome != attempt.Unchanged {
		t.Errorf("got %v", outcome)
	}
}

func TestARecoveredRequestNeedsItsSecret(t *testing.T) {
	b := newBench(t, []answer{made("d-bp1", 0, "zone-a")})
	r := requestFor(t, 1)
	r.Secrets.Provisioner = &v1.SecretReference{Namespace: "vault", Name: "gone"}
	b.attempts.Begin(r.Claim.UID, attempt.Recovered{Request: r})
	b.exec.work(t.Context(), r.Claim.UID)
	if _, outcome, err := b.result(b.actions); outcome != attempt.Unchanged || err == nil {
		t.Errorf("got %v, %v", outcome, err)
	}
	if creates, _ := b.driver.calls(); creates != 0 {
		t.Error("the driver was asked")
	}
}

func TestADeniedRescheduleIsToldAndRetried(t *testing.T) {
	denied := apierrors.NewInvalid(v1.SchemeGroupVersion.WithKind("PersistentVolumeClaim").GroupKind(), "data", nil)
	for name, test := range map[string]struct {
		live  func(*v1.PersistentVolumeClaim) // what the API server has by then
		gone  bool
		phase attempt.Phase
	}{
		"a policy denies it":        {phase: attempt.Waiting},
		"another node is selected":  {live: func(c *v1.PersistentVolumeClaim) { c.Annotations[request.AnnSelectedNode] = "node-2" }, phase: attempt.Unselected},
		"no node is selected":       {live: func(c *v1.PersistentVolumeClaim) { delete(c.Annotations, request.AnnSelectedNode) }, phase: attempt.Unselected},
		"the claim was made anew":   {live: func(c *v1.PersistentVolumeClaim) { c.UID = "another" }, phase: attempt.Unselected},
		"the claim is gone by then": {gone: true, phase: attempt.Unselected},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, []answer{soldOutAnswer()})
			if !test.gone {
				live := testClaim()
				if test.live != nil {
					test.live(live)
				}
				must(t, b.api.Tracker().Add(live))
			}
			b.api.PrependReactor("patch", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, denied })
			_, _, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
			if phase := b.attempts.Phase("0f1e"); phase != test.phase {
				t.Errorf("the Record is %v, want %v", phase, test.phase)
			}
			kept := test.phase == attempt.Waiting
			if events := strings.Join(b.drained(), "\n"); strings.Contains(events, "can't return to the scheduler yet") != kept || errors.Is(err, denied) != kept {
				t.Errorf("got %v; events %q", err, events)
			}
			if _, counted := measured(t, b.registry)["reschedules_total{out_of_stock}"]; counted == kept {
				t.Errorf("counted as a reschedule: %v", counted)
			}
		})
	}
}
