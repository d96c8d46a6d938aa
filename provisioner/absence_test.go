package provisioner

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func refused(code codes.Code) answer { return answer{err: status.Error(code, "no")} }

func TestOnlyAProofEndsAnUnknownOutcome(t *testing.T) {
	tests := map[string]struct {
		code   codes.Code
		listed []string
		after  time.Duration
		off    bool
		known  string // the volume of a PersistentVolume of the driver
		secret bool   // the class names one
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
		"a known volume is shown":                {code: codes.InvalidArgument, listed: []string{"disk-x"}, after: sightHorizon, known: "d-disk-x", want: Finished},
		"no known volume is shown":               {code: codes.InvalidArgument, listed: []string{"disk-x"}, after: sightHorizon, known: "d-elsewhere", want: Background},
		"a Secret has chosen the account":        {code: codes.InvalidArgument, listed: []string{"disk-x"}, after: sightHorizon, secret: true, want: Background},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, []answer{unavailable(), refused(test.code)}, &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "vault", Name: "x"}})
			b.config.DriverListsVolumes, b.driver.listed = !test.off, test.listed
			if test.known != "" {
				if err := b.volumes.Add(testVolume(test.known)); err != nil {
					t.Fatal(err)
				}
			}
			class := testClass(nil)
			if test.secret {
				class.Parameters = map[string]string{reservedPrefix + "secret-name": "x", reservedPrefix + "secret-namespace": "vault"}
			}
			_, _, _ = b.provision(t.Context(), testClaim(), class, "node-1")
			b.clock = b.clock.Add(test.after)
			_, outcome, _ := b.provision(t.Context(), testClaim(), class, "node-1")
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

func TestWantOfStockEndsAnUnknownOutcomeOnlyFromADriverThatRemembersIt(t *testing.T) {
	crashed := func(t *testing.T, b *bench) { // the provisioner, and nobody knows what became of the driver
		data, err := encode(b.journal.find(testClaim().UID))
		if err != nil {
			t.Fatal(err)
		}
		o, err := decode(data)
		if err != nil {
			t.Fatal(err)
		}
		o.since = b.clock
		b.journal.file(o)
	}
	for name, test := range map[string]struct {
		between func(*testing.T, *bench)
		later   time.Duration
		want    Outcome
	}{
		"it is the one that was asked":               {want: Reschedule},
		"it was started since":                       {between: func(_ *testing.T, b *bench) { b.driver.session++ }, want: Background},
		"it was started since, and a list proves it": {between: func(_ *testing.T, b *bench) { b.driver.session++ }, later: sightHorizon, want: Reschedule},
		"the provisioner was":                        {between: crashed, want: Background},
		"the provisioner was, and a list proves it":  {between: crashed, later: sightHorizon, want: Reschedule},
		"it may have forgotten":                      {between: func(_ *testing.T, b *bench) { b.driver.listed = []string{"disk-0f1e"} }, later: driverRemembers, want: Background},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, []answer{unavailable(), soldOutAnswer()})
			b.config.DriverListsVolumes, b.driver.listed = true, []string{"disk-x"}
			_, _, _ = b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
			if test.between != nil {
				test.between(t, b)
			}
			b.clock = b.clock.Add(test.later)
			for range 2 { // a second answer proves no more than the first
				_, outcome, _ := b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
				if outcome != test.want {
					t.Errorf("got %v, want %v", outcome, test.want)
				}
			}
		})
	}
}

func TestAClaimIsLookedAtAsSoonAsAListMayProveThatNoVolumeWasMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, []answer{unavailable(), refused(codes.Internal)})
		b.config.DriverListsVolumes, b.driver.listed = true, []string{"disk-x"}
		b.now = time.Now
		looks := make(chan struct{}, 10)
		b.look = func(*v1.PersistentVolumeClaim) { looks <- struct{}{} }
		try := func() Outcome {
			_, outcome, _ := b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
			return outcome
		}
		begin := time.Now()
		for range 4 {
			try()
			time.Sleep(time.Second)
		}
		<-looks
		if took := time.Since(begin); took > sightHorizon+listLasts {
			t.Errorf("it is looked at after %s", took)
		}
		if outcome := try(); outcome != Finished {
			t.Errorf("got %v", outcome)
		}
		time.Sleep(time.Hour)
		if len(looks) > 0 {
			t.Errorf("it is looked at %d more times", len(looks))
		}
	})
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
