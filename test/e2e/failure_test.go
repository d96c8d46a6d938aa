//go:build e2e

package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/simulator"
)

// heldReply makes ECS carry out the next CreateDisk at once and answer it late.
var heldReply = ecssim.Fault{Action: "CreateDisk", Do: ecssim.FaultDelay, DelayAfter: 5 * time.Second, Count: 1}

func TestDriverKilledInMidCreateMakesNoSecondDisk(t *testing.T) {
	s := newScene(t)
	s.fault(heldReply)
	s.Claim("survivor", s.Class(atOnce, essdThenAuto), "20Gi")
	d := s.awaitDisk("survivor")
	s.Topodisk.Kill(lab.DriverProgram)
	s.Must(s.Topodisk.StartDriver(s.Context()))
	if _, got := s.bound("survivor", late); got.ID != d.ID {
		t.Errorf("the claim has disk %s, the one made before the kill is %s", got.ID, d.ID)
	}
}

func TestProvisionerKilledBeforeSaveMakesNoSecondDisk(t *testing.T) {
	s := newScene(t)
	s.fault(heldReply)
	s.podWithClaim("survivor", s.Class(waits, essdThenAuto), "20Gi")
	d := s.awaitDisk("survivor")
	s.Topodisk.Kill(lab.ProvisionerName)
	if volumes, err := s.volumes(s.Context()); err != nil || len(volumes) > 0 {
		t.Fatalf("the kill came too late: %d volumes, %v", len(volumes), err)
	}
	s.Must(s.Topodisk.StartProvisioner(s.Context(), lab.ProvisionerName, quickElection...))
	_, got := s.bound("survivor", late)
	if got.ID != d.ID {
		t.Errorf("the claim has disk %s, the one made before the kill is %s", got.ID, d.ID)
	}
	s.running("survivor", got)
	if volumes, err := s.volumes(s.Context()); err != nil || len(volumes) != 1 {
		t.Errorf("there are %d volumes, %v; want 1", len(volumes), err)
	}
}

func TestAnotherProvisionerTakesOverFromAKilledLeader(t *testing.T) {
	s := newScene(t)
	const second = "disk-provisioner-2"
	class := s.Class(atOnce, essdThenAuto)
	s.Claim("before", class, "20Gi")
	s.bound("before", soon) // so the first one leads
	s.Must(s.Topodisk.StartProvisioner(s.Context(), second, quickElection...))
	s.Cleanup(func() {
		s.Topodisk.Stop(second)
		s.restartProvisioner()
	})
	s.Topodisk.Kill(lab.ProvisionerName)
	s.Claim("after", class, "20Gi")
	s.bound("after", soon)
	s.deleteClaim("before")
	s.WaitFor("the new leader deletes, too", soon, func(context.Context) (bool, error) { return len(s.disks("before")) == 0, nil })
}

func TestClaimWaitsForAnECSThatIsUnreachable(t *testing.T) {
	s := newScene(t)
	s.Topodisk.Gate.Shut()
	s.Claim("patient", s.Class(atOnce, essdThenAuto), "20Gi")
	s.awaitEvent("patient", late, "Unavailable")
	if n := len(s.disks("patient")); n > 0 {
		t.Fatalf("ECS has %d disks behind a shut gate", n)
	}
	s.Must(s.Topodisk.Gate.Open())
	s.bound("patient", late)
}

func TestRefusedSignatureIsReportedWithItsRequestID(t *testing.T) {
	s := newScene(t)
	mend := func() error { return s.Topodisk.WriteCredentials(simulator.KeyID, simulator.Secret) }
	s.Cleanup(func() { s.Must(mend()) })
	s.awaitLeaderForNewClaims()
	s.Must(s.Topodisk.WriteCredentials(simulator.KeyID, "a-wrong-secret"))
	s.Claim("signed", s.Class(atOnce, essdThenAuto), "20Gi")
	event := s.awaitEvent("signed", late, "Unauthenticated", "SignatureDoesNotMatch")
	if !requestID.MatchString(event.Message) {
		t.Errorf("the event has no RequestId: %s", event.Message)
	}
	s.Must(mend())
	s.bound("signed", late)
}

func TestCallOfUnknownOutcomeIsRepeatedUnchanged(t *testing.T) {
	for _, c := range []struct {
		fault   ecssim.Fault
		repeats bool // nothing was made: only another call can make the disk
	}{
		{ecssim.Fault{Do: ecssim.FaultError, Count: 2}, true},
		{ecssim.Fault{Do: ecssim.FaultLostRequest, Count: 2}, true},
		{ecssim.Fault{Do: ecssim.FaultLostReply, Count: 1}, false},
		{ecssim.Fault{Do: ecssim.FaultErrorAfter, Count: 1}, false},
		{ecssim.Fault{Do: ecssim.FaultTruncated, Count: 1}, false},
		{ecssim.Fault{Do: ecssim.FaultEmpty, Count: 1}, false},
		{ecssim.Fault{Do: ecssim.FaultHTML, Count: 1}, false},
	} {
		t.Run(c.fault.Do, func(t *testing.T) {
			s := newScene(t)
			c.fault.Action = "CreateDisk"
			s.fault(c.fault)
			s.Claim("same", s.Class(atOnce, essdThenAuto), "20Gi")
			s.bound("same", late)
			calls := s.creates("same")
			if c.repeats && len(calls) != 1+c.fault.Count {
				t.Errorf("ECS got %d CreateDisk calls, want %d", len(calls), 1+c.fault.Count)
			}
			for _, call := range calls[1:] {
				if diff := cmp.Diff(calls[0].Params, call.Params); diff != "" {
					t.Errorf("call %d differs from the first (-first +this):\n%s", call.Number, diff)
				}
			}
		})
	}
}

func TestThrottledCallsAreWaitedOut(t *testing.T) {
	s := newScene(t)
	s.fault(ecssim.Fault{Action: "CreateDisk", Do: ecssim.FaultThrottle, Count: 2})
	s.Claim("throttled", s.Class(atOnce, essdThenAuto), "20Gi")
	s.bound("throttled", late)
	if n := succeeded(s.creates("throttled")); n != 1 {
		t.Errorf("%d CreateDisk calls succeeded, want 1", n)
	}
}

func TestRescheduleAfterALostReplyFindsTheDisk(t *testing.T) {
	s := newScene(t)
	s.fault(ecssim.Fault{Action: "CreateDisk", Do: ecssim.FaultLostReply, Count: 1})
	s.podWithClaim("lost", s.Class(waits, essdThenAuto), "20Gi")
	d := s.awaitDisk("lost")
	s.Must(s.Simulator.SellOut(s.Context(), d.Zone)) // a new disk could not be had any more
	_, got := s.bound("lost", late)
	if got.ID != d.ID {
		t.Errorf("the claim has disk %s, the one whose reply was lost is %s", got.ID, d.ID)
	}
	s.running("lost", got)
	if seen := s.selections.Rescheduled(); slices.Contains(seen, "lost") {
		t.Errorf("the claim was rescheduled although its disk was there")
	}
}

func TestClaimWaitsForADriverThatIsGone(t *testing.T) {
	s := newScene(t)
	s.Topodisk.Stop(lab.DriverProgram)
	s.Claim("patient", s.Class(atOnce, essdThenAuto), "20Gi")
	s.awaitEvent("patient", late, "Unavailable")
	s.Must(s.Topodisk.StartDriver(s.Context()))
	s.bound("patient", late)
}

func TestADriverWithoutCredentialsSaysSoOnItsPod(t *testing.T) {
	s := newScene(t)
	s.Cleanup(func() {
		s.Must(s.Topodisk.WriteCredentials(simulator.KeyID, simulator.Secret))
		s.restartDriver()
	})
	api, ofDriver := s.Client.CoreV1().Events(leaseNamespace), metav1.ListOptions{FieldSelector: "reason=ECSDoesNotAnswer"}
	s.Must(api.DeleteCollection(s.Context(), metav1.DeleteOptions{}, ofDriver)) // what earlier tests have left
	s.Must(s.Topodisk.WriteCredentials(simulator.KeyID, "a-wrong-secret"))
	s.restartDriver()
	s.WaitFor("the Pod has an event", soon, func(ctx context.Context) (bool, error) {
		events, err := api.List(ctx, ofDriver)
		names := func(e corev1.Event) bool { return strings.Contains(e.Message, "SignatureDoesNotMatch") }
		return err == nil && slices.ContainsFunc(events.Items, names), err
	})
}
