package claim

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/internal/errorinfo"
	"github.com/topodisk/topodisk/internal/outofstock"
	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
	"github.com/topodisk/topodisk/provisioner/internal/turns"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/stock"
	"github.com/topodisk/topodisk/topology"
)

func TestClaimsShareARefusal(t *testing.T) {
	b := newBench(t, []answer{soldOut()})
	class := testClass(nil)
	const claims, seconds = 1000, 600
	for second := range seconds {
		for n := range 20 { // the scheduler sends each of them again every 50 s
			claim := claimOf((second*20+n)%claims, "20Gi")
			claim.UID = types.UID(fmt.Sprintf("%03d", (second*20+n)%claims)) // the index of UIDs is by how they begin
			_, outcome, err := b.provision(t.Context(), claim, class, "node-1")
			if outcome != otherNode || err == nil {
				t.Fatalf("got %v, %v", outcome, err)
			}
		}
		b.clock = b.clock.Add(time.Second)
		b.drained()
		b.api.ClearActions()
	}
	calls, _ := b.driver.Calls()
	if calls > seconds/30 || calls < seconds/70 {
		t.Errorf("%d calls in %d s, want about one a minute", calls, seconds)
	}
	if all := b.open(); all != 0 {
		t.Errorf("%d volumes are under way", all)
	}
}

// lateJournal has records once it is released, but for one that it has at once.
type lateJournal struct {
	noJournal
	first   string
	release chan struct{}
}

func (j lateJournal) Put(_ context.Context, key string, _ []byte) error {
	if key != j.first {
		<-j.release
	}
	return nil
}

// pacedDriver takes a second for each call.
type pacedDriver struct {
	*provisionertest.ScriptedDriver
}

func (d pacedDriver) CreateVolume(ctx context.Context, in *csi.CreateVolumeRequest, opts ...grpc.CallOption) (*csi.CreateVolumeResponse, error) {
	time.Sleep(time.Second)
	return d.ScriptedDriver.CreateVolume(ctx, in, opts...)
}

// Claims that wait for the journal while the first refusal comes share it, too.
func TestClaimsThatWaitForTheJournalShareARefusal(t *testing.T) {
	const claims = 20
	for name, test := range map[string]struct {
		first       string // the claim that has not to wait
		each, calls int
	}{
		"all wait, and as many as are worked on at the same time call": {"", 2, 2},
		"one is refused while all others wait":                         {"uid-3", claims, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, []answer{soldOut()})
				written := lateJournal{first: test.first, release: make(chan struct{})}
				b.Driver, b.Journal, b.Events, b.turns = pacedDriver{b.driver}, written, &record.FakeRecorder{}, turns.New(test.each)
				class := testClass(nil)
				class.VolumeBindingMode = ptr.To(storagev1.VolumeBindingImmediate)
				must(t, b.Classes.Add(class))
				for n := range claims {
					claim := claimOf(n, "20Gi")
					must(t, b.Claims.Add(claim))
					b.Start(claim)
				}
				ctx, cancel := context.WithCancel(t.Context())
				var run sync.WaitGroup
				run.Go(func() { b.Run(ctx) })
				time.Sleep(2 * time.Second) // a call takes one
				close(written.release)
				time.Sleep(time.Minute)
				cancel()
				run.Wait()
				if calls, _ := b.driver.Calls(); calls != test.calls {
					t.Errorf("%d calls for %d claims, want %d", calls, claims, test.calls)
				}
				if all := b.open(); all != 0 {
					t.Errorf("%d volumes are under way", all)
				}
			})
		})
	}
}

// A claim whose volume may exist is asked for again; others share the refusal all the same.
func TestClaimsShareARefusalThatIsNotFinal(t *testing.T) {
	notFinal := answer{Err: outofstock.Mark(status.New(codes.Aborted, "a volume may exist")).Err()}
	b := newBench(t, []answer{notFinal, notFinal, soldOut()})
	class := testClass(nil)
	asked := func(n int, outcome outcome, want int) {
		t.Helper()
		_, got, err := b.provision(t.Context(), claimOf(n, "20Gi"), class, "node-1")
		if calls, _ := b.driver.Calls(); calls != want || got != outcome || err == nil {
			t.Errorf("claim %d: %d calls, want %d; %v, want %v; %v", n, calls, want, got, outcome, err)
		}
	}
	asked(1, maybeVolume, 1)
	asked(2, otherNode, 1)
	asked(1, maybeVolume, 2)
	asked(1, otherNode, 3)
	asked(1, otherNode, 3)
	if all := b.open(); all != 0 {
		t.Errorf("%d volumes are under way", all)
	}
}

// Claims that can't be had for a reason of their own don't keep others from the driver, however many there are.
func TestATenantDoesNotUseUpTheTrials(t *testing.T) {
	b := newBench(t, []answer{soldOut()})
	_, _, _ = b.provision(t.Context(), claimOf(0, "20Gi"), testClass(nil), "node-1") // sold out for a moment
	b.driver.SetCreates(refused(codes.OutOfRange))
	for second := range 60 {
		b.clock = b.clock.Add(time.Second)
		greedy := claimOf(1000+second, "20Gi")
		greedy.Namespace = "greedy"
		_, _, _ = b.provision(t.Context(), greedy, testClass(nil), "node-1") // each is new
		before, _ := b.driver.Calls()
		_, _, _ = b.provision(t.Context(), claimOf(1, "20Gi"), testClass(nil), "node-1")
		if calls, _ := b.driver.Calls(); calls > before {
			return
		}
		b.drained()
	}
	calls, _ := b.driver.Calls()
	t.Errorf("in a minute the driver was asked %d times for claims of namespace greedy, and never for another one", calls-1)
}

// An attempt that ends between the question whether the driver may be called and the call leaves the trial to others.
func TestAClaimThatDoesNotCallLeavesTheTrialToOthers(t *testing.T) {
	b := newBench(t, []answer{soldOut(), made("d-1", 20*gib, "zone-a")})
	_, _, _ = b.provision(t.Context(), claimOf(0, "20Gi"), testClass(nil), "node-1")
	b.clock = b.clock.Add(stock.FirstPause)
	b.Journal = &fullJournal{}
	_, _, _ = b.provision(t.Context(), claimOf(1, "20Gi"), testClass(nil), "node-1")
	b.Journal = noJournal{}
	if _, _, err := b.provision(t.Context(), claimOf(2, "20Gi"), testClass(nil), "node-1"); err != nil {
		t.Error(err)
	}
}

// The driver says from which size more disk types are possible: until then its refusal holds.
func TestASmallClaimsRefusalIsNotForALargerOne(t *testing.T) {
	noSmall, err := status.New(codes.ResourceExhausted, "no").WithDetails(errorinfo.Info{Kind: "OUT_OF_STOCK", MoreTypesFrom: 19*gib + 1}.Detail())
	must(t, err)
	b := newBench(t, []answer{{Err: noSmall.Err()}, made("d-1", 100*gib, "zone-a")})
	class := testClass(nil)
	_, _, _ = b.provision(t.Context(), claimOf(0, "5Gi"), class, "node-1")
	if _, _, err := b.provision(t.Context(), claimOf(1, "19Gi"), class, "node-1"); err == nil || len(b.driver.Created) != 1 {
		t.Errorf("%d calls: %v", len(b.driver.Created), err)
	}
	if most := b.Refusals.Most(class, "zone-a"); most != math.MaxInt64 {
		t.Errorf("the scheduler is told that the zone has %d bytes at most", most)
	}
	if _, _, err := b.provision(t.Context(), claimOf(2, "100Gi"), class, "node-1"); err != nil {
		t.Error(err)
	}
}

func TestARestockedZoneIsUsedAtOnce(t *testing.T) {
	b := newBench(t, []answer{soldOut(), made("d-1", 20*gib, "zone-a"), made("d-2", 20*gib, "zone-a")})
	class := testClass(nil)
	_, _, _ = b.provision(t.Context(), claimOf(1, "20Gi"), class, "node-1")
	_, outcome, err := b.provision(t.Context(), claimOf(2, "20Gi"), class, "node-1")
	if outcome != otherNode || !strings.Contains(fmt.Sprint(err), "called again at 22:13:25 UTC") {
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
		"another zone":  {size: "20Gi", node: "node-2", asked: true, change: func(b *bench) { b.zones.Requirement = provisionertest.InZone("zone-b").Requirement }},
		"another class": {size: "20Gi", node: "node-1", asked: true, class: map[string]string{"other": "1"}},
		"a request under way is repeated": {size: "20Gi", node: "node-1", asked: true, change: func(b *bench) {
			b.driver.Creates = []answer{unavailable()}
			b.Refusals = stock.New(b.Now)
			_, _, _ = b.provision(t.Context(), claimOf(2, "20Gi"), testClass(nil), "node-1")
			b.driver.Creates = []answer{soldOut()}
			_, _, _ = b.provision(t.Context(), claimOf(3, "20Gi"), testClass(nil), "node-1")
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, []answer{soldOut()})
			_, _, _ = b.provision(t.Context(), claimOf(1, "20Gi"), testClass(nil), "node-1")
			if test.change != nil {
				test.change(b)
			}
			before, _ := b.driver.Calls()
			class := testClass(test.class)
			if test.class != nil {
				class.Name = "other"
			}
			_, _, _ = b.provision(t.Context(), claimOf(2, test.size), class, test.node)
			if after, _ := b.driver.Calls(); (after > before) != test.asked {
				t.Errorf("asked: %v, want %v", after > before, test.asked)
			}
		})
	}
}

// A tenant's VolumeAttributesClass that no zone sells closes no class to others.
func TestARefusalOfAttributesIsNotForTheClass(t *testing.T) {
	b := newBench(t, []answer{soldOut(), made("d-1", 20*gib, "zone-a")}, &storagev1.VolumeAttributesClass{
		ObjectMeta: metav1.ObjectMeta{Name: "unsold"}, DriverName: provisionertest.DriverName, Parameters: map[string]string{"type": "cloud_essd_entry"},
	})
	b.DriverModifies = true
	special := claimOf(1, "20Gi")
	special.Spec.VolumeAttributesClassName = ptr.To("unsold")
	for range 3 {
		if _, outcome, err := b.provision(t.Context(), special, testClass(nil), "node-1"); outcome != otherNode {
			t.Errorf("got %v, %v", outcome, err)
		}
	}
	if calls, _ := b.driver.Calls(); calls != 1 {
		t.Errorf("the driver is asked %d times for what it has just refused", calls)
	}
	if _, _, err := b.provision(t.Context(), claimOf(2, "20Gi"), testClass(nil), "node-1"); err != nil {
		t.Error(err)
	}
}

func TestWithoutASelectedNodeARefusedClaimWaits(t *testing.T) {
	b := newBench(t, []answer{soldOut()})
	for range 2 {
		if _, outcome, err := b.provision(t.Context(), claimOf(1, "20Gi"), testClass(nil), ""); outcome == otherNode || err == nil {
			t.Errorf("got %v, %v", outcome, err)
		}
	}
	if calls, _ := b.driver.Calls(); calls != 1 {
		t.Errorf("%d calls", calls)
	}
}

func TestRescheduleCodes(t *testing.T) {
	b := newBench(t, []answer{refused(codes.InvalidArgument)})
	try := func(n int, node string) outcome {
		_, meaning, _ := b.provision(t.Context(), claimOf(n, "20Gi"), testClass(nil), node)
		return meaning
	}
	asked := func(want int) {
		t.Helper()
		if creates, _ := b.driver.Calls(); creates != want {
			t.Errorf("asked %d times, want %d", creates, want)
		}
	}
	if outcome := try(1, "node-1"); outcome != noVolume {
		t.Errorf("without the code: %v", outcome)
	}
	b.RescheduleCodes = []codes.Code{codes.InvalidArgument}
	if outcome := try(1, ""); outcome != noVolume {
		t.Errorf("without a node: %v", outcome)
	}
	asked(2)
	b.drained()
	for range 10 { // the scheduler sends the same claim to the same node again and again
		if outcome := try(1, "node-1"); outcome != otherNode {
			t.Errorf("got %v", outcome)
		}
	}
	asked(3)
	events := b.said()
	if strings.Contains(events, "out of stock") || strings.Count(events, "the driver has just refused the claim for node node-1; it is called again at") != 9 {
		t.Errorf("events %q", events)
	}
	rescheduled, skipped := testutil.ToFloat64(b.metrics.reschedules.WithLabelValues("refused")), testutil.ToFloat64(b.metrics.skipped)
	if rescheduled != 10 || skipped != 9 {
		t.Errorf("%v reschedules and %v calls that were not made are counted", rescheduled, skipped)
	}
	if outcome := try(1, "node-2"); outcome != otherNode {
		t.Errorf("another node: %v", outcome)
	}
	if outcome := try(2, "node-1"); outcome != otherNode {
		t.Errorf("another claim: %v", outcome)
	}
	asked(5)
	if most := b.Refusals.Most(testClass(nil), "zone-a"); most != math.MaxInt64 {
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
		errNodeChanged:                                   "node_changed",
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

// A claim's owner may write any text as its selected node.
func TestAClaimReturnsToTheSchedulerWhateverItsNodeIs(t *testing.T) {
	for _, node := range []string{"node-1", `"}]`, "node\x7f-\U000e0001", "<node>\n"} {
		b := newBench(t, []answer{soldOut()})
		must(t, b.api.Tracker().Add(testClaim(func(c *v1.PersistentVolumeClaim) { c.Annotations[request.AnnSelectedNode] = node })))
		if _, outcome, err := b.provision(t.Context(), testClaim(), testClass(nil), node); outcome != otherNode {
			t.Errorf("%q: got %v, %v", node, outcome, err)
		}
		claim, err := b.api.CoreV1().PersistentVolumeClaims("shop").Get(t.Context(), testClaim().Name, metav1.GetOptions{})
		must(t, err)
		if left, has := claim.Annotations[request.AnnSelectedNode]; has {
			t.Errorf("%q: the claim still has the selected node %q", node, left)
		}
	}
}
