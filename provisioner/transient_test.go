package provisioner

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/topodisk/topodisk/internal/leader"
	"github.com/topodisk/topodisk/provisioner/csiconn"
	"github.com/topodisk/topodisk/topology"
)

func TestATransientFailureIsToldIfItPersists(t *testing.T) {
	notBack := &csiconn.NotAsked{Err: status.Error(codes.Unavailable, "the driver is not back")}
	tests := map[string]struct {
		err     error
		outcome Outcome
		told    bool // at once
	}{
		"the driver is away":                  {notBack, Unchanged, false},
		"the lease was lost":                  {fmt.Errorf("the journal: %w", leader.ErrLost), Unchanged, false},
		"the node's plugin is away":           {&topology.Error{Reason: topology.NodeUnready, Node: "n", Err: errors.New("no keys")}, Unchanged, false},
		"the node's plugin stays away":        {&topology.Error{Reason: topology.NodeUnready, Node: "n", Err: errors.New("no keys")}, Reschedule, true},
		"no node has the driver":              {&topology.Error{Reason: topology.NoTopology, Err: errors.New("none")}, Unchanged, true},
		"the driver says that it is too busy": {status.Error(codes.Unavailable, "too busy"), Background, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, transient := fake.NewClientset(), newTransientFailures(time.Now)
				broadcaster := record.NewBroadcaster()
				defer broadcaster.Shutdown()
				broadcaster.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: eventsFolded(api, newEventMemory(time.Now), transient)(metav1.NamespaceAll)})
				recorder := broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: "test"})
				claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "uid"}}
				fails := func() {
					transient.record(claim.UID, test.outcome, test.err)
					recorder.Event(claim, v1.EventTypeWarning, "ProvisioningFailed", "failed to provision volume: "+test.err.Error())
				}
				events := func() int {
					t.Helper()
					synctest.Wait()
					list, err := api.CoreV1().Events("shop").List(t.Context(), metav1.ListOptions{})
					if err != nil {
						t.Fatal(err)
					}
					return len(list.Items)
				}
				early := 0
				if test.told {
					early = 1
				}
				fails()
				transient.record(claim.UID, Finished, nil) // before the event comes to be written
				if got := events(); got != early {
					t.Errorf("%d events at once, want %d", got, early)
				}
				time.Sleep(time.Hour)
				if got := events(); got != early {
					t.Errorf("%d events of a wait that is over, want %d", got, early)
				}
				fails() // another wait begins
				time.Sleep(transientPeriod / 2)
				fails()
				if got := events(); got != early {
					t.Errorf("%d events of a wait that has not lasted, want %d", got, early)
				}
				time.Sleep(transientPeriod) // with no further attempt
				if got := events(); got != 1 {
					t.Errorf("%d events of a wait that lasts, want 1", got)
				}
				time.Sleep(foldFor)
				fails()
				if got := events(); got != 1 {
					t.Errorf("%d events of a wait that goes on, want 1, counted", got)
				}
			})
		})
	}
}
