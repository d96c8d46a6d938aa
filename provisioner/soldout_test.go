package provisioner

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/internal/outofstock"
	"github.com/topodisk/topodisk/provisioner/attempt"
	"github.com/topodisk/topodisk/provisioner/stock"
	"github.com/topodisk/topodisk/topology"
)

func soldOutAnswer() answer {
	return answer{err: status.Error(codes.ResourceExhausted, "zone-a is sold out")}
}

// claimOf makes the nth of many claims.
func claimOf(n int, size string) *v1.PersistentVolumeClaim {
	return testClaim(func(c *v1.PersistentVolumeClaim) {
		c.UID = types.UID(fmt.Sprintf("uid-%d", n))
		c.Spec.Resources.Requests[v1.ResourceStorage] = resource.MustParse(size)
	})
}

func TestClaimsShareARefusal(t *testing.T) {
	b := newBench(t, []answer{soldOutAnswer()})
	class := testClass(nil)
	const claims, seconds = 1000, 600
	for second := range seconds {
		for n := range 20 { // the scheduler sends each of them again every 50 s
			_, outcome, err := b.provision(t.Context(), claimOf((second*20+n)%claims, "20Gi"), class, "node-1")
			if outcome != attempt.Reschedule || err == nil {
				t.Fatalf("got %v, %v", outcome, err)
			}
		}
		b.clock = b.clock.Add(time.Second)
		b.drained()
	}
	calls, _ := b.driver.calls()
	if calls > seconds/30 || calls < seconds/70 {
		t.Errorf("%d calls in %d s, want about one a minute", calls, seconds)
	}
	if all := b.open(); all != 0 {
		t.Errorf("%d volumes are under way", all)
	}
}

// Claims that wait for the journal while the first refusal comes share it, too.
func TestClaimsThatWaitForTheJournalShareARefusal(t *testing.T) {
	const claims = 20
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, []answer{soldOutAnswer()})
		b.exec.trace = func(types.UID, attempt.Action) {}
		store := heldStore{release: make(chan struct{})}
		b.Provisioner.driver, b.store = slowDriver{b.driver, time.Second}, store
		b.beginImmediate(t, claims)
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { b.exec.run(ctx) })
		synctest.Wait()
		close(store.release)
		time.Sleep(time.Minute)
		cancel()
		run.Wait()
		if calls, _ := b.driver.calls(); calls != b.config.Workers {
			t.Errorf("%d calls for %d claims, want one from each of %d workers", calls, claims, b.config.Workers)
		}
		if all := b.open(); all != 0 {
			t.Errorf("%d volumes are under way", all)
		}
	})
}

// A claim whose volume may exist is asked for again; others share the refusal all the same.
func TestClaimsShareARefusalThatIsNotFinal(t *testing.T) {
	notFinal := answer{err: outofstock.Mark(status.New(codes.Aborted, "a volume may exist")).Err()}
	b := newBench(t, []answer{notFinal, notFinal, soldOutAnswer()})
	class := testClass(nil)
	asked := func(n int, outcome attempt.Outcome, want int) {
		t.Helper()
		_, got, err := b.provision(t.Context(), claimOf(n, "20Gi"), class, "node-1")
		if calls, _ := b.driver.calls(); calls != want || got != outcome || err == nil {
			t.Errorf("claim %d: %d calls, want %d; %v, want %v; %v", n, calls, want, got, outcome, err)
		}
	}
	asked(1, attempt.Background, 1)
	asked(2, attempt.Reschedule, 1)
	asked(1, attempt.Background, 2)
	asked(1, attempt.Reschedule, 3)
	asked(1, attempt.Reschedule, 3)
	if all := b.open(); all != 0 {
		t.Errorf("%d volumes are under way", all)
	}
}

func TestARestockedZoneIsUsedAtOnce(t *testing.T) {
	b := newBench(t, []answer{soldOutAnswer(), made("d-1", 20*gib, "zone-a"), made("d-2", 20*gib, "zone-a")})
	class := testClass(nil)
	_, _, _ = b.provision(t.Context(), claimOf(1, "20Gi"), class, "node-1")
	_, outcome, err := b.provision(t.Context(), claimOf(2, "20Gi"), class, "node-1")
	if outcome != attempt.Reschedule || !strings.Contains(text(err), "called again at 22:13:25 UTC") {
		t.Errorf("right after: %v, %v", outcome, err)
	}
	b.clock = b.clock.Add(stock.FirstPause)
	for n := range 2 { // the first one asks, and the second one need not wait
		if _, _, err := b.provision(t.Context(), claimOf(n, "20Gi"), class, "node-1"); err != nil {
			t.Errorf("claim %d: %v", n, err)
		}
	}
}

func TestARefusalIsForItsZoneAndSizeOnly(t *testing.T) {
	tests := map[string]struct {
		change func(*bench)
		size   string
		class  map[string]string
		node   string
		asked  bool
	}{
		"the same":      {size: "20Gi", node: "node-1"},
		"a larger one":  {size: "21Gi", node: "node-1"},
		"a smaller one": {size: "19Gi", node: "node-1", asked: true},
		"another zone":  {size: "20Gi", node: "node-2", asked: true, change: func(b *bench) { b.zones.requirement = inZone("zone-b").requirement }},
		"another class": {size: "20Gi", node: "node-1", asked: true, class: map[string]string{"other": "1"}},
		"a request under way is repeated": {size: "20Gi", node: "node-1", asked: true, change: func(b *bench) {
			b.driver.creates = []answer{unavailable()}
			b.refusals = stock.New(b.now)
			b.resolver.refusals = b.refusals
			_, _, _ = b.provision(t.Context(), claimOf(2, "20Gi"), testClass(nil), "node-1")
			b.driver.creates = []answer{soldOutAnswer()}
			_, _, _ = b.provision(t.Context(), claimOf(3, "20Gi"), testClass(nil), "node-1")
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, []answer{soldOutAnswer()})
			_, _, _ = b.provision(t.Context(), claimOf(1, "20Gi"), testClass(nil), "node-1")
			if test.change != nil {
				test.change(b)
			}
			before, _ := b.driver.calls()
			class := testClass(test.class)
			if test.class != nil {
				class.Name = "other"
			}
			_, _, _ = b.provision(t.Context(), claimOf(2, test.size), class, test.node)
			if after, _ := b.driver.calls(); (after > before) != test.asked {
				t.Errorf("asked: %v, want %v", after > before, test.asked)
			}
		})
	}
}

// A tenant's VolumeAttributesClass that no zone sells closes no class to others.
func TestARefusalOfAttributesIsNotForTheClass(t *testing.T) {
	b := newBench(t, []answer{soldOutAnswer(), made("d-1", 20*gib, "zone-a")}, &storagev1.VolumeAttributesClass{
		ObjectMeta: metav1.ObjectMeta{Name: "unsold"}, DriverName: driverName, Parameters: map[string]string{"type": "cloud_essd_entry"},
	})
	b.resolver.config.DriverModifies = true
	special := claimOf(1, "20Gi")
	special.Spec.VolumeAttributesClassName = ptr.To("unsold")
	for range 3 {
		if _, outcome, err := b.provision(t.Context(), special, testClass(nil), "node-1"); outcome != attempt.Reschedule {
			t.Errorf("got %v, %v", outcome, err)
		}
	}
	if calls, _ := b.driver.calls(); calls != 1 {
		t.Errorf("the driver is asked %d times for what it has just refused", calls)
	}
	if _, _, err := b.provision(t.Context(), claimOf(2, "20Gi"), testClass(nil), "node-1"); err != nil {
		t.Error(err)
	}
}

func TestWithoutASelectedNodeARefusedClaimWaits(t *testing.T) {
	b := newBench(t, []answer{soldOutAnswer()})
	for range 2 {
		if _, outcome, err := b.provision(t.Context(), claimOf(1, "20Gi"), testClass(nil), ""); outcome == attempt.Reschedule || err == nil {
			t.Errorf("got %v, %v", outcome, err)
		}
	}
	if calls, _ := b.driver.calls(); calls != 1 {
		t.Errorf("%d calls", calls)
	}
}

func TestRescheduleCodes(t *testing.T) {
	b := newBench(t, []answer{refused(codes.InvalidArgument)})
	try := func(n int, node string) attempt.Outcome {
		_, outcome, _ := b.provision(t.Context(), claimOf(n, "20Gi"), testClass(nil), node)
		return outcome
	}
	asked := func(want int) {
		t.Helper()
		if creates, _ := b.driver.calls(); creates != want {
			t.Errorf("asked %d times, want %d", creates, want)
		}
	}
	if outcome := try(1, "node-1"); outcome != attempt.Finished {
		t.Errorf("without the code: %v", outcome)
	}
	b.config.RescheduleCodes = []codes.Code{codes.InvalidArgument}
	b.restart()
	if outcome := try(1, ""); outcome != attempt.Finished {
		t.Errorf("without a node: %v", outcome)
	}
	asked(2)
	b.drained()
	for range 10 { // the scheduler sends the same claim to the same node again and again
		if outcome := try(1, "node-1"); outcome != attempt.Reschedule {
			t.Errorf("got %v", outcome)
		}
	}
	asked(3)
	events := strings.Join(b.drained(), "\n")
	if strings.Contains(events, "out of stock") || strings.Count(events, "the driver has just refused the claim for node node-1; it is called again at") != 9 {
		t.Errorf("events %q", events)
	}
	if got := measured(t, b.registry); got["reschedules_total{refused}"] != 10 || got["creates_skipped_total{}"] != 9 {
		t.Errorf("measured %v", got)
	}
	if outcome := try(1, "node-2"); outcome != attempt.Reschedule {
		t.Errorf("another node: %v", outcome)
	}
	if outcome := try(2, "node-1"); outcome != attempt.Reschedule {
		t.Errorf("another claim: %v", outcome)
	}
	asked(5)
	if most := b.refusals.Most(testClass(nil), "zone-a"); most != math.MaxInt64 {
		t.Errorf("a refusal of one claim leaves %d bytes to all", most)
	}
	b.clock = b.clock.Add(stock.FirstPause)
	try(1, "node-1")
	asked(6)
}

func TestReschedulesAreCountedByReason(t *testing.T) {
	for err, want := range map[error]string{
		status.Error(codes.ResourceExhausted, "x"):       "out_of_stock",
		&stock.RefusedBefore{}:                           "out_of_stock",
		&stock.RefusedBefore{OfClaim: true}:              "refused",
		errSiblingFirst:                                  "other_claim",
		errReturned:                                      "other_claim",
		status.Error(codes.InvalidArgument, "x"):         "refused",
		&topology.Error{Reason: topology.NodeGone}:       "node_gone",
		&topology.Error{Reason: topology.NodeUnready}:    "node_unready",
		&topology.Error{Reason: topology.NodeNotAllowed}: "node_not_allowed",
	} {
		if got := rescheduleReason(fmt.Errorf("CreateVolume: %w", err)); got != want {
			t.Errorf("%v: got %s, want %s", err, got, want)
		}
	}
}
