package provisioner

import (
	"errors"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/topodisk/topodisk/provisioner/csiconn"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/topology"
)

func refused(code codes.Code) answer { return answer{err: status.Error(code, "no")} }

// A final code ends what earlier calls have left open, too.
func TestOutcomeOfEveryCode(t *testing.T) {
	tests := []struct {
		code            codes.Code
		immediate, late Outcome
	}{
		{code: codes.ResourceExhausted, immediate: Finished, late: Reschedule},
		{code: codes.AlreadyExists, immediate: Finished, late: Finished},
		{code: codes.Canceled, immediate: Background, late: Background},
		{code: codes.DeadlineExceeded, immediate: Background, late: Background},
		{code: codes.Unavailable, immediate: Background, late: Background},
		{code: codes.Aborted, immediate: Background, late: Background},
		{code: codes.Unknown, immediate: Background, late: Background},
		{code: codes.InvalidArgument, immediate: Finished, late: Finished},
		{code: codes.NotFound, immediate: Finished, late: Finished},
		{code: codes.PermissionDenied, immediate: Finished, late: Finished},
		{code: codes.Unauthenticated, immediate: Finished, late: Finished},
		{code: codes.FailedPrecondition, immediate: Finished, late: Finished},
		{code: codes.OutOfRange, immediate: Finished, late: Finished},
		{code: codes.Unimplemented, immediate: Finished, late: Finished},
		{code: codes.Internal, immediate: Finished, late: Finished},
		{code: codes.DataLoss, immediate: Finished, late: Finished},
	}
	for _, test := range tests {
		t.Run(test.code.String(), func(t *testing.T) {
			err := status.Error(test.code, "x")
			for _, unknown := range []bool{false, true} {
				for node, want := range map[string]Outcome{"": test.immediate, "n": test.late} {
					o := &order{unknown: unknown, Request: &request.Request{Node: node, Create: &csi.CreateVolumeRequest{AccessibilityRequirements: &csi.TopologyRequirement{}}}}
					if got := newBench(t, nil).outcomeOf(o, err); got != want {
						t.Errorf("node %q, unknown before %v: got %v, want %v", node, unknown, got, want)
					}
				}
			}
		})
	}
}

func TestAnErrorThatIsNoStatusIsInTheBackground(t *testing.T) {
	if got := outcomeOfCreate(errors.New("connection reset"), true); got != Background {
		t.Errorf("got %v", got)
	}
}

func TestACallThatWasNotMadeChangesNothing(t *testing.T) {
	away := answer{err: &csiconn.NotAsked{Err: status.Error(codes.Unavailable, "the driver is not back")}}
	for name, test := range map[string]struct {
		answers []answer
		open    int // orders left under way after the call that was not made
		last    Outcome
	}{
		"the first one":          {[]answer{away, soldOutAnswer()}, 0, Reschedule},
		"after an unknown one":   {[]answer{unavailable(), away, refused(codes.InvalidArgument)}, 1, Finished},
		"after a final refusal":  {[]answer{refused(codes.Internal), away, soldOutAnswer()}, 0, Reschedule},
		"after one that is lost": {[]answer{{}, away, refused(codes.InvalidArgument)}, 1, Finished},
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
					if all, _ := b.journal.underWay(); outcome != Unchanged || status.Code(err) != codes.Unavailable || all != test.open {
						t.Errorf("got %v, %v; %d orders are under way, want %d", outcome, err, all, test.open)
					}
				}
			}
		})
	}
}

func TestNoRescheduleWithoutTopology(t *testing.T) {
	o := &order{Request: &request.Request{Node: "n", Create: &csi.CreateVolumeRequest{}}}
	if got := newBench(t, nil).outcomeOf(o, status.Error(codes.ResourceExhausted, "x")); got != Finished {
		t.Errorf("got %v", got)
	}
}

func TestOutcomeOfTopology(t *testing.T) {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	tests := map[string]struct {
		reason  topology.Reason
		nodes   []runtime.Object
		waited  time.Duration
		outcome Outcome
	}{
		"the class is malformed":                     {reason: topology.Invalid, outcome: Finished},
		"the class does not allow the node":          {reason: topology.NodeNotAllowed, outcome: Reschedule},
		"no node is known yet":                       {reason: topology.NoTopology, waited: time.Hour, outcome: Unchanged},
		"the node is gone":                           {reason: topology.NodeGone, outcome: Reschedule},
		"the cache lags, the node is there":          {reason: topology.NodeGone, nodes: []runtime.Object{node}, outcome: Unchanged},
		"the driver may be about to register":        {reason: topology.NodeUnready, nodes: []runtime.Object{node}, waited: 59 * time.Second, outcome: Unchanged},
		"the driver never came":                      {reason: topology.NodeUnready, nodes: []runtime.Object{node}, waited: time.Minute, outcome: Reschedule},
		"the node is there, its CSINode never comes": {reason: topology.NodeGone, nodes: []runtime.Object{node}, waited: time.Minute, outcome: Reschedule},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil, test.nodes...)
			b.zones.err = &topology.Error{Reason: test.reason, Node: "node-1"}
			claim := testClaim()
			_, outcome, err := b.provision(t.Context(), claim, testClass(nil), "node-1")
			if test.waited > 0 {
				if outcome != Unchanged {
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

func TestAnotherSelectedNodeStartsTheGraceAnew(t *testing.T) {
	b := newBench(t, nil, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}})
	b.zones.err = &topology.Error{Reason: topology.NodeUnready}
	_, _, _ = b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
	b.clock = b.clock.Add(time.Hour)
	if _, outcome, _ := b.provision(t.Context(), testClaim(), testClass(nil), "node-2"); outcome != Unchanged {
		t.Errorf("got %v", outcome)
	}
}

func TestAfterACrashAnOrderWithoutItsSecretIsNotAskedWithOtherKeys(t *testing.T) {
	b := newBench(t, []answer{made("d-bp1", 0, "zone-a")})
	o := orderOf(t, 1)
	o.Secrets.Provisioner, o.unknown = &v1.SecretReference{Namespace: "vault", Name: "gone"}, true
	b.journal.file(o)
	if _, outcome, err := b.provision(t.Context(), o.Claim, o.Class, "node-1"); outcome != Unchanged || err == nil {
		t.Errorf("got %v, %v", outcome, err)
	}
	if creates, _ := b.driver.calls(); creates != 0 {
		t.Error("the driver was asked")
	}
}
