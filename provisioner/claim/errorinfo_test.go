package claim

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/topodisk/topodisk/internal/errorinfo"
	"github.com/topodisk/topodisk/provisioner/watch"
	"github.com/topodisk/topodisk/topology"
)

// withInfo is an answer of the driver that says more to programs.
func withInfo(t *testing.T, code codes.Code, info errorinfo.Info) error {
	t.Helper()
	answer, err := status.New(code, "no").WithDetails(info.Detail())
	must(t, err)
	return answer.Err()
}

func TestInfoOf(t *testing.T) {
	said := errorinfo.Info{Kind: "OUT_OF_STOCK", Action: "CreateDisk", Code: "OperationDenied.NoStock", RequestID: "R-1", Zones: []string{"zone-a"}}
	snapshot := watch.Object{Resource: watch.VolumeSnapshots, Namespace: "default", Name: "monday"}
	for name, test := range map[string]struct {
		failure failure
		want    errorinfo.Info
	}{
		"the driver's word":         {failure{err: fmt.Errorf("CreateVolume disk-1: %w", withInfo(t, codes.ResourceExhausted, said))}, said},
		"a driver that says less":   {failure{err: status.Error(codes.ResourceExhausted, "no")}, errorinfo.Info{}},
		"a node that is gone":       {failure{err: &topology.Error{Reason: topology.NodeGone, Node: "node-1"}, kind: reschedules}, errorinfo.Info{Kind: "NODE_GONE"}},
		"a snapshot to wait for":    {failure{err: watch.NotReady(snapshot, "1", errors.New("it is not ready to use yet"))}, errorinfo.Info{Kind: errorinfo.SnapshotNotReady}},
		"a class that is not valid": {failure{err: errors.New("parameter type"), kind: invalid}, errorinfo.Info{Kind: errorinfo.Invalid}},
		"anything else":             {failure{err: errors.New("the API server is away")}, errorinfo.Info{}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, infoOf(&test.failure)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The event of a refusal has the driver's word for programs, whatever its text is.
func TestEventsAreAnnotated(t *testing.T) {
	said := errorinfo.Info{Kind: "OUT_OF_STOCK", Code: "OperationDenied.NoStock", Zones: []string{"zone-a"}}
	b := newBench(t, []answer{{Err: withInfo(t, codes.ResourceExhausted, said)}})
	if _, _, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-a"); err == nil {
		t.Fatal("it has a volume")
	}
	if events := strings.Join(b.drained(), "\n"); !strings.Contains(events, fmt.Sprint(said.Annotations())) {
		t.Errorf("no event is annotated with %v:\n%s", said.Annotations(), events)
	}
}
