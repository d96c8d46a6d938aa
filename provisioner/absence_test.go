package provisioner

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
)

func refused(code codes.Code) answer { return answer{err: status.Error(code, "no")} }

func TestOnlyAProofEndsAnUnknownOutcome(t *testing.T) {
	tests := map[string]struct {
		code   codes.Code
		listed []string
		after  time.Duration
		off    bool
		want   Outcome
	}{
		"the list shows others, long after":      {code: codes.InvalidArgument, listed: []string{"disk-x", "disk-y"}, after: sightHorizon, want: Finished},
		"the list shows it":                      {code: codes.InvalidArgument, listed: []string{"disk-x", "disk-0f1e"}, after: sightHorizon, want: Background},
		"it may not show yet":                    {code: codes.InvalidArgument, listed: []string{"disk-x"}, after: sightHorizon - time.Second, want: Background},
		"the list is empty for the first time":   {code: codes.InvalidArgument, listed: []string{}, after: sightHorizon, want: Background},
		"the list fails":                         {code: codes.InvalidArgument, after: sightHorizon, want: Background},
		"the keys may not see it":                {code: codes.PermissionDenied, listed: []string{"disk-x"}, after: sightHorizon, want: Background},
		"the keys are not accepted":              {code: codes.Unauthenticated, listed: []string{"disk-x"}, after: sightHorizon, want: Background},
		"the driver lists nothing":               {code: codes.InvalidArgument, listed: []string{"disk-x"}, after: sightHorizon, off: true, want: Background},
		"the call itself may have made a volume": {code: codes.Unavailable, listed: []string{"disk-x"}, after: sightHorizon, want: Background},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, []answer{unavailable(), refused(test.code)})
			b.config.DriverListsVolumes, b.driver.listed = !test.off, test.listed
			_, _, _ = b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
			b.clock = b.clock.Add(test.after)
			_, outcome, _ := b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
			if outcome != test.want {
				t.Errorf("got %v, want %v", outcome, test.want)
			}
			if all, _ := b.journal.underWay(); (all == 0) != (test.want == Finished) {
				t.Errorf("%d orders are under way", all)
			}
		})
	}
}

func TestOneListServesManyAndRefusalsDoNotPutTheProofOff(t *testing.T) {
	b := newBench(t, []answer{unavailable()})
	b.config.DriverListsVolumes, b.driver.listed = true, []string{"disk-x"}
	try := func(n int) Outcome {
		_, outcome, _ := b.provision(t.Context(), claimOf(n, "20Gi"), testClass(nil), "node-1")
		return outcome
	}
	for n := range 50 {
		try(n)
	}
	b.driver.creates = []answer{refused(codes.Internal)}
	for range 12 { // a refusal every 5 s does not start the minute anew
		b.clock = b.clock.Add(5 * time.Second)
		try(0)
	}
	for n := range 50 {
		if outcome := try(n); outcome != Finished {
			t.Fatalf("claim %d: %v", n, outcome)
		}
	}
	if b.driver.lists > 2 {
		t.Errorf("%d lists", b.driver.lists)
	}
}

func TestAfterACrashAnOrderWithoutItsSecretIsNotAskedWithOtherKeys(t *testing.T) {
	b := newBench(t, []answer{made("d-bp1", 0, "zone-a")})
	o := orderOf(t, 1)
	o.refs.provisioner, o.unknown = &v1.SecretReference{Namespace: "vault", Name: "gone"}, true
	b.journal.file(o)
	if _, outcome, err := b.provision(t.Context(), o.claim, o.class, "node-1"); outcome != Unchanged || err == nil {
		t.Errorf("got %v, %v", outcome, err)
	}
	if creates, _ := b.driver.calls(); creates != 0 {
		t.Error("the driver was asked")
	}
}

func TestAnEmptyListIsBelievedOnceItHasBeenSoForLongAndNothingIsToBeSeen(t *testing.T) {
	for name, test := range map[string]struct {
		known *v1.PersistentVolume
		want  Outcome
	}{
		"no volume is known":               {want: Finished},
		"a volume is known":                {known: testVolume("d-1"), want: Background},
		"a volume of another driver alone": {known: testVolume("d-1", func(pv *v1.PersistentVolume) { pv.Spec.CSI.Driver = "other" }), want: Finished},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, []answer{unavailable(), refused(codes.InvalidArgument)})
			b.config.DriverListsVolumes, b.driver.listed = true, []string{}
			if test.known != nil {
				if err := b.volumes.Add(test.known); err != nil {
					t.Fatal(err)
				}
			}
			try := func(later time.Duration) Outcome {
				b.clock = b.clock.Add(later)
				_, outcome, _ := b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
				return outcome
			}
			try(0)
			for _, later := range []time.Duration{sightHorizon, sightHorizon / 2, sightHorizon/2 - time.Second} {
				if outcome := try(later); outcome != Background {
					t.Fatalf("after %s more: %v", later, outcome)
				}
			}
			if outcome := try(listLasts + time.Second); outcome != test.want {
				t.Errorf("got %v, want %v", outcome, test.want)
			}
		})
	}
}
