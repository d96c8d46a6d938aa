package claim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/topodisk/topodisk/provisioner/csiconn"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/topology"
)

// TestOutcomeOf holds what the error of a call means against a table of all codes.
func TestOutcomeOf(t *testing.T) {
	tests := map[codes.Code]struct {
		pinned, movable, added outcome // no node may be selected again, one may, and the operator has added the code
	}{
		codes.Canceled:           {maybeVolume, maybeVolume, maybeVolume},
		codes.Unknown:            {maybeVolume, maybeVolume, maybeVolume},
		codes.InvalidArgument:    {noVolume, noVolume, otherNode},
		codes.DeadlineExceeded:   {maybeVolume, maybeVolume, maybeVolume},
		codes.NotFound:           {noVolume, noVolume, otherNode},
		codes.AlreadyExists:      {noVolume, noVolume, otherNode},
		codes.PermissionDenied:   {noVolume, noVolume, otherNode},
		codes.ResourceExhausted:  {noVolume, otherNode, otherNode},
		codes.FailedPrecondition: {noVolume, noVolume, otherNode},
		codes.Aborted:            {maybeVolume, maybeVolume, maybeVolume},
		codes.OutOfRange:         {noVolume, noVolume, otherNode},
		codes.Unimplemented:      {noVolume, noVolume, otherNode},
		codes.Internal:           {noVolume, noVolume, otherNode},
		codes.Unavailable:        {maybeVolume, maybeVolume, maybeVolume},
		codes.DataLoss:           {noVolume, noVolume, otherNode},
		codes.Unauthenticated:    {noVolume, noVolume, otherNode},
	}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		t.Run(code.String(), func(t *testing.T) {
			test, ok := tests[code]
			if !ok {
				t.Fatal("the table has no row for the code")
			}
			bare := status.Error(code, "no")
			for _, err := range []error{bare, fmt.Errorf("in zone-a: %w", bare)} {
				for _, c := range []struct {
					name                  string
					unsent, mayReschedule bool
					added                 []codes.Code
					want                  outcome
				}{
					{name: "no other node may be selected", want: test.pinned},
					{name: "no other node may be selected, the code is added", added: []codes.Code{code}, want: test.pinned},
					{name: "another node may be selected", mayReschedule: true, want: test.movable},
					{name: "another code is added", mayReschedule: true, added: []codes.Code{code + 1}, want: test.movable},
					{name: "the code is added", mayReschedule: true, added: []codes.Code{codes.OK, code}, want: test.added},
					{name: "the driver was not asked", unsent: true, want: notSent},
					{name: "the driver was not asked, the code is added", unsent: true, mayReschedule: true, added: []codes.Code{code}, want: notSent},
				} {
					if got := outcomeOf(err, !c.unsent, c.mayReschedule, c.added); got != c.want {
						t.Errorf("%v, %s: got %v, want %v", err, c.name, got, c.want)
					}
				}
			}
		})
	}
}

// An error that is no gRPC status says nothing of what the driver has done.
func TestOutcomeOfOtherErrors(t *testing.T) {
	for _, err := range []error{errors.New("connection reset"), context.DeadlineExceeded, context.Canceled, fmt.Errorf("no socket: %w", context.Canceled)} {
		if got := outcomeOf(err, true, true, []codes.Code{codes.Unknown}); got != maybeVolume {
			t.Errorf("%v: got %v, want %v", err, got, maybeVolume)
		}
		if got := outcomeOf(err, false, true, nil); got != notSent {
			t.Errorf("%v, the driver was not asked: got %v, want %v", err, got, notSent)
		}
	}
}

// The names are values of a label of metrics.
func TestOutcomeNames(t *testing.T) {
	for o, want := range map[outcome]string{
		noVolume: "finished", maybeVolume: "background", notSent: "unchanged", otherNode: "reschedule", otherNode + 1: "outcome 4", -1: "outcome -1",
	} {
		if got := o.String(); got != want {
			t.Errorf("%d is %q, want %q", int(o), got, want)
		}
	}
}

func TestACallNotSentChangesNothing(t *testing.T) {
	away := answer{Err: &csiconn.NotAsked{Err: status.Error(codes.Unavailable, "the driver is not back")}}
	for name, test := range map[string]struct {
		answers []answer
		open    int // volumes left under way after the call that was not made
		last    outcome
	}{
		"the first one":          {[]answer{away, soldOut()}, 0, otherNode},
		"after an unknown one":   {[]answer{unavailable(), away, refused(codes.InvalidArgument)}, 1, noVolume},
		"after a final refusal":  {[]answer{refused(codes.Internal), away, soldOut()}, 0, otherNode},
		"after one that is lost": {[]answer{{}, away, refused(codes.InvalidArgument)}, 1, noVolume},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, test.answers)
			for i := range test.answers {
				_, meaning, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
				switch {
				case i == len(test.answers)-1:
					if meaning != test.last {
						t.Errorf("the last one: got %v, want %v", meaning, test.last)
					}
				case csiconn.IsNotAsked(test.answers[i].Err):
					if all := b.open(); meaning != notSent || status.Code(err) != codes.Unavailable || all != test.open {
						t.Errorf("got %v, %v; %d volumes are under way, want %d", meaning, err, all, test.open)
					}
				}
			}
		})
	}
}

func TestOutcomeOfTopology(t *testing.T) {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	tests := map[string]struct {
		reason topology.Reason
		nodes  []runtime.Object
		waited time.Duration
		want   outcome
	}{
		"the class is malformed":                     {reason: topology.Invalid, want: notSent},
		"the class does not allow the node":          {reason: topology.NodeNotAllowed, want: otherNode},
		"the labels of the node disagree":            {reason: topology.NodeMislabelled, want: otherNode},
		"no node is known yet":                       {reason: topology.NoTopology, waited: time.Hour, want: notSent},
		"the node is gone":                           {reason: topology.NodeGone, want: otherNode},
		"the cache lags, the node is there":          {reason: topology.NodeGone, nodes: []runtime.Object{node}, want: notSent},
		"the driver may be about to register":        {reason: topology.NodeUnready, nodes: []runtime.Object{node}, waited: 59 * time.Second, want: notSent},
		"the driver never came":                      {reason: topology.NodeUnready, nodes: []runtime.Object{node}, waited: time.Minute, want: otherNode},
		"the node is there, its CSINode never comes": {reason: topology.NodeGone, nodes: []runtime.Object{node}, waited: time.Minute, want: otherNode},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil, test.nodes...)
			b.zones.Err = &topology.Error{Reason: test.reason, Node: "node-1"}
			claim := testClaim()
			_, meaning, err := b.provision(t.Context(), claim, testClass(nil), "node-1")
			if test.waited > 0 {
				if meaning != notSent {
					t.Fatalf("at first: got %v", meaning)
				}
				b.clock = b.clock.Add(test.waited)
				_, meaning, err = b.provision(t.Context(), claim, testClass(nil), "node-1")
			}
			if err == nil || meaning != test.want {
				t.Errorf("got %v and %v, want %v and an error", meaning, err, test.want)
			}
			if creates, _ := b.driver.Calls(); creates != 0 {
				t.Errorf("the driver was asked %d times", creates)
			}
		})
	}
}

func TestAnotherSelectedNodeRestartsTheGrace(t *testing.T) {
	b := newBench(t, nil, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}})
	b.zones.Err = &topology.Error{Reason: topology.NodeUnready}
	_, _, _ = b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
	b.clock = b.clock.Add(time.Hour)
	if _, meaning, _ := b.provision(t.Context(), testClaim(), testClass(nil), "node-2"); meaning != notSent {
		t.Errorf("got %v", meaning)
	}
}

// A back-off that other failures have made long does not outlast the grace of a node.
func TestTheEndOfTheGraceIsNotSleptOver(t *testing.T) {
	b := newBench(t, []answer{{Err: status.Error(codes.Internal, "no")}}, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}})
	b.RetryStart, b.RetryMax = time.Second, 5*time.Minute
	uid := testClaim().UID
	_, _, _ = b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
	for range 12 {
		b.Wake(uid)
		_, _, _ = b.attempt(t.Context(), uid)
	}
	b.zones.Err = &topology.Error{Reason: topology.NodeUnready}
	b.Wake(uid)
	if _, meaning, _ := b.attempt(t.Context(), uid); meaning != notSent {
		t.Fatalf("got %v", meaning)
	}
	if wait := b.claims[uid].notBefore.Sub(b.clock); wait != b.NodeGrace {
		t.Errorf("the next attempt is after %v, want %v", wait, b.NodeGrace)
	}
	b.clock = b.clock.Add(b.NodeGrace)
	if _, meaning, err := b.attempt(t.Context(), uid); meaning != otherNode {
		t.Errorf("after the grace: %v, %v", meaning, err)
	}
}

func TestARecoveredRequestNeedsItsSecret(t *testing.T) {
	for name, claim := range map[string]*v1.PersistentVolumeClaim{"its claim is there": testClaim(), "its claim is gone": nil} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, []answer{made("d-bp1", 0, "zone-a")})
			r := b.journalled(t, testClaim(), testClass(nil))
			r.Secrets = request.SecretRefs{request.ProvisionerSecret: &v1.SecretReference{Namespace: "vault", Name: "gone"}}
			if claim != nil {
				must(t, b.Claims.Add(claim))
			}
			b.Recover(r)
			if _, meaning, err := b.attempt(t.Context(), r.Claim.UID); meaning != notSent || err == nil {
				t.Errorf("got %v, %v", meaning, err)
			}
			if creates, _ := b.driver.Calls(); creates != 0 || b.open() != 1 {
				t.Errorf("the driver was asked %d times, %d requests are open", creates, b.open())
			}
		})
	}
}

func TestADeniedRescheduleIsToldAndRetried(t *testing.T) {
	denied := apierrors.NewInvalid(v1.SchemeGroupVersion.WithKind("PersistentVolumeClaim").GroupKind(), "data", nil)
	for name, test := range map[string]struct {
		live  func(*v1.PersistentVolumeClaim) // what the API server has by then
		gone  bool
		state string
	}{
		"a policy denies it":        {state: "waiting"},
		"another node is selected":  {live: func(c *v1.PersistentVolumeClaim) { c.Annotations[request.AnnSelectedNode] = "node-2" }, state: "returned"},
		"no node is selected":       {live: func(c *v1.PersistentVolumeClaim) { delete(c.Annotations, request.AnnSelectedNode) }, state: "returned"},
		"the claim was made anew":   {live: func(c *v1.PersistentVolumeClaim) { c.UID = "another" }, state: "returned"},
		"the claim is gone by then": {gone: true, state: "returned"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, []answer{soldOut()})
			if !test.gone {
				live := testClaim()
				if test.live != nil {
					test.live(live)
				}
				must(t, b.api.Tracker().Add(live))
			}
			b.api.PrependReactor("patch", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, denied })
			_, _, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
			if state := b.state("0f1e"); state != test.state {
				t.Errorf("the claim is %s, want %s", state, test.state)
			}
			kept := test.state == "waiting"
			if events := b.said(); strings.Contains(events, "can't return to the scheduler yet") != kept || errors.Is(err, denied) != kept {
				t.Errorf("got %v; events %q", err, events)
			}
			if counted := testutil.ToFloat64(b.metrics.reschedules.WithLabelValues(labelOutOfStock)) != 0; counted == kept {
				t.Errorf("counted as a reschedule: %v", counted)
			}
		})
	}
}
