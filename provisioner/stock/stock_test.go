package stock

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/topology"
)

const gib = 1 << 30

func inZone(zone string, bytes int64) Want {
	return Want{
		Class: &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "essd", UID: "c-1"}}, Bytes: bytes, Claim: "uid-1", Node: "node-1",
		Requisite: []*csi.Topology{{Segments: map[string]string{topology.WellKnownZoneKey: zone}}},
	}
}

func TestPausesDouble(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	r := New(func() time.Time { return now })
	want := inZone("zone-a", 20*gib)
	for _, pause := range []time.Duration{5, 10, 20, 40, 60, 60} {
		if err := r.Ask(want); err != nil {
			t.Fatalf("the driver is not asked: %v", err)
		}
		r.Refused(want, 0, now)
		now = now.Add(pause*time.Second - 1)
		if err := r.Ask(want); err == nil {
			t.Errorf("the driver is asked again before %d s are over", pause)
		}
		now = now.Add(1)
	}
	now = now.Add(longestPause + forgottenAfter)
	_ = r.Ask(want)
	if r.Refused(want, 0, now); len(r.refusals) != 1 || r.Most(want.Class, "zone-a") != 20*gib-1 {
		t.Errorf("%d refusals, %d bytes", len(r.refusals), r.Most(want.Class, "zone-a"))
	}
	if now = now.Add(FirstPause); r.Ask(want) != nil {
		t.Error("a refusal that was long over still counts as the one before")
	}
}

func TestRefusedSince(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	r := New(func() time.Time { return now })
	want, larger, smaller := inZone("zone-a", 20*gib), inZone("zone-a", 21*gib), inZone("zone-a", 19*gib)
	refused := func(w Want, passed time.Time) bool {
		t.Helper()
		return r.RefusedSince(w, passed) != nil
	}
	passed := now
	if refused(want, passed) {
		t.Error("nothing was refused")
	}
	now = now.Add(time.Second)
	r.Refused(want, 0, passed)
	if !refused(want, passed) || !refused(larger, passed) || refused(smaller, passed) || refused(inZone("zone-b", 20*gib), passed) {
		t.Error("an equal or larger request in the zone is refused, no other")
	}
	now = now.Add(FirstPause)
	if refused(want, passed) {
		t.Error("the refusal is over")
	}
	if passed = now; r.Ask(want) != nil || refused(want, passed) {
		t.Error("the one that may call the driver after the refusal is kept from it by itself")
	}
	other := want
	if other.Claim = "another"; r.Refuses(other) == nil || r.Ask(other) == nil {
		t.Error("another one may, too")
	}
	if r.Refuses(want) != nil || r.Ask(want) != nil {
		t.Error("the one that may counts as refused")
	}
	now = now.Add(time.Second)
	if r.Served(want, r.now()); refused(want, passed) {
		t.Error("the driver has stock again")
	}
}

// What is refused for more than a class asks for is no refusal of the class: neither to its other claims, nor in a zone's capacity.
func TestARefusalIsForNoOtherRequest(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	r := New(func() time.Time { return now })
	changes := 0
	r.OnChange(func(string, time.Time) { changes++ })
	plain, special, other := inZone("zone-a", 20*gib), inZone("zone-a", 20*gib), inZone("zone-a", 20*gib)
	special.Specifics, other.Specifics, special.Claim, other.Claim = "x", "y", "uid-2", "uid-3"
	r.Refused(special, 0, now)
	if r.Ask(special) == nil {
		t.Error("the same is asked for again at once")
	}
	if err := errors.Join(r.Ask(plain), r.Ask(other)); err != nil {
		t.Errorf("others are refused: %v", err)
	}
	if most := r.Most(plain.Class, "zone-a"); most != math.MaxInt64 || len(r.Zones(plain.Class)) > 0 || changes > 0 {
		t.Errorf("the class has at most %d bytes in the zone; %v; %d changes", most, r.Zones(plain.Class), changes)
	}
	r.Refused(plain, 0, now)
	r.Served(other, r.now())
	if r.Ask(plain) == nil || r.Ask(special) == nil || changes != 1 {
		t.Errorf("another request that was served ends a refusal; %d changes", changes)
	}
}

func TestConcurrentRefusalsCountOnce(t *testing.T) {
	asked := time.Unix(1_700_000_000, 0)
	now := asked
	r := New(func() time.Time { return now })
	for range 50 {
		now = now.Add(100 * time.Millisecond)
		r.Refused(inZone("zone-a", 20*gib), 0, asked)
	}
	for _, last := range r.refusals[classKey(inZone("zone-a", 0).Class)] {
		if last.pause != FirstPause {
			t.Errorf("the pause is %s", last.pause)
		}
	}
}

func TestOldRefusalsExpire(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	r := New(func() time.Time { return now })
	for i := range 1000 {
		want := inZone("zone-a", 20*gib)
		want.Claim = types.UID(fmt.Sprint("old-", i))
		r.RefusedClaim(want, now)
	}
	now = now.Add(2 * forgottenAfter)
	r.RefusedClaim(inZone("zone-a", 20*gib), now)
	if n := len(r.refusals[""]); n != 1 {
		t.Errorf("%d refusals are kept", n)
	}
	if r.Served(inZone("zone-a", 20*gib), r.now()); len(r.refusals) != 0 {
		t.Errorf("%d groups of refusals are kept", len(r.refusals))
	}
}

// BenchmarkRefusal measures what a refusal, and the question where a class was refused, cost among those of other claims.
func BenchmarkRefusal(b *testing.B) {
	for _, others := range []int{10, 1000, 100000} {
		b.Run(fmt.Sprintf("others=%d", others), func(b *testing.B) {
			now := time.Unix(1_700_000_000, 0)
			r := New(func() time.Time { return now })
			want := inZone("zone-a", 20*gib)
			for i := range others {
				want.Claim = types.UID(fmt.Sprint("uid-", i))
				r.RefusedClaim(want, now)
			}
			for b.Loop() {
				r.RefusedClaim(want, now)
				r.Refused(want, 0, now)
				r.Zones(want.Class)
			}
		})
	}
}

func TestOnChange(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	r := New(func() time.Time { return now })
	var told []time.Time
	r.OnChange(func(class string, until time.Time) {
		if class != "essd" {
			t.Errorf("told of class %s", class)
		}
		told = append(told, until)
	})
	want := inZone("zone-a", 20*gib)
	r.Served(want, r.now()) // nothing was refused
	r.RefusedClaim(want, now)
	r.Served(want, r.now()) // a refusal of one claim says nothing of the class
	r.Refused(want, 0, now)
	r.Served(want, r.now())
	if len(told) != 2 || !told[0].Equal(now.Add(FirstPause)) || !told[1].IsZero() {
		t.Errorf("told %v", told)
	}
}

func TestASmallerVolumeEndsNoRefusal(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	r := New(func() time.Time { return now })
	changes := 0
	large, small := inZone("zone-a", 2000*gib), inZone("zone-a", 20*gib)
	r.Refused(large, 0, now)
	r.RefusedClaim(large, now)
	r.OnChange(func(string, time.Time) { changes++ })
	r.Served(small, r.now())
	if r.Refuses(large) == nil || r.Refuses(small) != nil || r.Most(large.Class, "zone-a") != large.Bytes-1 || len(r.Zones(large.Class)) != 1 || changes != 0 {
		t.Errorf("of %d bytes a volume may be %d, and the change was told %d times", large.Bytes, r.Most(large.Class, "zone-a"), changes)
	}
	if r.Served(large, r.now()); r.Refuses(large) != nil || len(r.refusals) != 0 || changes != 1 {
		t.Errorf("served, and %d groups of refusals are kept; the change was told %d times", len(r.refusals), changes)
	}
}

// A refusal of 2000 GiB says nothing about 20 GiB, which were refused minutes ago and are not any more; nor does the call for 2000 GiB.
func TestALargerRefusalProlongsNoSmallerOne(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	r := New(func() time.Time { return now })
	small, large := inZone("zone-a", 20*gib), inZone("zone-a", 2000*gib)
	large.Claim = "uid-2"
	r.Refused(small, 0, now)
	for minute := range 60 {
		now = now.Add(time.Minute)
		if err := r.Ask(large); err != nil {
			t.Fatalf("minute %d: %v", minute, err)
		}
		if err := r.Refuses(small); err != nil {
			t.Fatalf("minute %d: 20 GiB are refused while another claim asks for 2000: %v", minute, err)
		}
		r.Refused(large, 0, now)
		if err := r.Refuses(small); err != nil {
			t.Fatalf("minute %d: 20 GiB are refused because 2000 are: %v", minute, err)
		}
		if most := r.Most(small.Class, "zone-a"); most != 2000*gib-1 {
			t.Fatalf("minute %d: the zone has %d GiB at most, want 2000", minute, most>>30)
		}
	}
	if r.Served(small, now); r.Refuses(large) == nil {
		t.Error("a smaller volume ends the refusal")
	}
}

// While 2000 GiB are refused, or asked for, one claim may ask for the 20 GiB that were refused before, not all that want them.
func TestOneClaimAsksForASmallerSize(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	r := New(func() time.Time { return now })
	small, other, large := inZone("zone-a", 20*gib), inZone("zone-a", 20*gib), inZone("zone-a", 2000*gib)
	other.Claim, large.Claim = "uid-2", "uid-3"
	r.Refused(small, 0, now)
	now = now.Add(FirstPause)
	if err := errors.Join(r.Ask(large), r.Ask(small)); err != nil {
		t.Fatal(err)
	}
	r.Refused(large, 0, now)
	if r.Ask(other) == nil {
		t.Error("two claims of the same size call the driver at the same time")
	}
	r.Refused(small, 0, now)
	now = now.Add(2*FirstPause - 1)
	if r.Ask(other) == nil || r.Ask(large) == nil {
		t.Error("the refusal is over too early")
	}
}

// A call that ends without a word about stock leaves the trial to the next claim, once.
func TestATrialWithoutAnAnswerIsGivenBack(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	r := New(func() time.Time { return now })
	first, second, third := inZone("zone-a", 20*gib), inZone("zone-a", 20*gib), inZone("zone-a", 20*gib)
	second.Claim, third.Claim = "uid-2", "uid-3"
	r.Refused(first, 0, now)
	if r.EndTrial(first); r.Ask(second) == nil {
		t.Error("a claim that was refused ends the refusal")
	}
	now = now.Add(FirstPause)
	if r.Ask(first) != nil || r.Ask(second) == nil {
		t.Fatal("one claim may call the driver")
	}
	changes := 0
	r.OnChange(func(string, time.Time) { changes++ })
	if r.EndTrial(second); r.Ask(second) == nil {
		t.Error("another claim ends the trial")
	}
	if r.EndTrial(first); r.Most(first.Class, "zone-a") != math.MaxInt64 || changes != 1 {
		t.Errorf("the zone has %d bytes at most, and %d changes are told", r.Most(first.Class, "zone-a"), changes)
	}
	if r.Ask(second) != nil || r.Ask(third) == nil {
		t.Error("one claim may call the driver, and then no other")
	}
	r.Refused(second, 0, now)
	if r.EndTrial(second); r.Ask(third) == nil {
		t.Error("the answer to a trial ends with it")
	}
}

// A small disk can be of fewer types than a large one: its refusal is for the sizes of these types alone, and so is the zone's capacity.
func TestARefusalHoldsBelowTheSizeOfFurtherTypes(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	r := New(func() time.Time { return now })
	small, middle, large := inZone("zone-a", 5*gib), inZone("zone-a", 15*gib), inZone("zone-a", 100*gib)
	middle.Claim, large.Claim = "uid-2", "uid-3"
	most := func(when string, want int64) {
		t.Helper()
		if got := r.Most(small.Class, "zone-a"); got != want {
			t.Errorf("%s the zone has %d bytes at most, want %d", when, got, want)
		}
	}
	r.Refused(small, 20*gib, now)
	if r.Refuses(small) == nil || r.Refuses(middle) == nil || r.Ask(large) != nil {
		t.Error("a refusal of 5 GiB is to hold for less than 20 GiB alone")
	}
	most("while 5 to 20 GiB are refused", math.MaxInt64)
	r.Refused(large, 0, now)
	if r.Refuses(large) == nil || r.Refuses(inZone("zone-a", 50*gib)) != nil {
		t.Error("a refusal of 100 GiB is to hold for as much or more")
	}
	most("while 5 to 20 GiB and 100 are refused", 100*gib-1)
	r.Refused(inZone("zone-a", 20*gib), 0, now)
	most("while all from 5 GiB is refused", 5*gib-1)
	if r.Served(large, now); r.Refuses(small) == nil || r.Refuses(large) != nil {
		t.Error("the types of a large disk have stock again, which says nothing of a small one")
	}
	most("once 100 GiB are served", math.MaxInt64)
	now = now.Add(2 * forgottenAfter)
	if r.RefusedClaim(large, now); len(r.belows) != 1 {
		t.Errorf("the sizes %v are kept for ever", r.belows)
	}
}

// A claim that its own refusal holds back does not use up the class's one trial.
func TestARefusedClaimLeavesTheTrialToOthers(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	r := New(func() time.Time { return now })
	want, other := inZone("zone-a", 20*gib), inZone("zone-a", 20*gib)
	other.Claim = "uid-2"
	r.Refused(want, 0, now)
	now = now.Add(FirstPause - time.Second)
	r.RefusedClaim(want, now)
	now = now.Add(time.Second)
	if err := r.Ask(want); err == nil {
		t.Error("the driver is asked for the claim that it has refused")
	}
	if err := r.Ask(other); err != nil {
		t.Errorf("nobody calls the driver, though the pause is over: %v", err)
	}
}

func TestScarcity(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	r := New(func() time.Time { return now })
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "essd"}}
	want := func(bytes int64) Want { return Want{Class: class, Bytes: bytes} }
	is := func(when string, refused, scarce bool) {
		t.Helper()
		if got := r.Refuses(want(20)) != nil; got != refused {
			t.Errorf("%s: refused %v", when, got)
		}
		if got := r.IsScarce(want(20)); got != scarce {
			t.Errorf("%s: scarce %v", when, got)
		}
	}
	is("at first", false, false)
	r.Refused(want(30), 0, now)
	is("a larger one is refused", false, false)
	r.Refused(want(20), 0, now)
	is("it is refused", true, true)
	now = now.Add(2 * FirstPause)
	is("the refusal is over", false, true)
	now = now.Add(forgottenAfter)
	is("for minutes", false, true)
	now = now.Add(time.Second)
	is("for longer", false, false)
	r.Refused(want(20), 0, now)
	now = now.Add(FirstPause)
	r.Served(want(20), r.now())
	is("the driver has some again", false, false)
}
