package claim

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/topodisk/topodisk/internal/leader"
	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
	"github.com/topodisk/topodisk/provisioner/journal"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/topology"
)

// takeAll empties the queue, and has each claim looked at.
func (b *bench) takeAll(t *testing.T) {
	t.Helper()
	for b.queue.Len() > 0 {
		b.next(t.Context())
	}
}

func TestAClaimWithAVolumeGetsNoOther(t *testing.T) {
	for what, test := range map[string]struct {
		claim *v1.PersistentVolumeClaim // as the cache shows it; nil for none
		state string
	}{
		"a claim that is still shown without": {testClaim(), "saved"},
		"a claim that is not shown at all":    {nil, "none"},
		"a claim that is shown bound":         {testClaim(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "d-1" }), "none"},
		"another claim of the same name":      {testClaim(func(c *v1.PersistentVolumeClaim) { c.UID, c.Spec.VolumeName = "other", "d-0" }), "none"},
	} {
		b := newBench(t, []answer{made("d-2", 0, "zone-a")})
		must(t, b.Classes.Add(testClass(nil)))
		if test.claim != nil {
			must(t, b.Claims.Add(test.claim))
		}
		pv := testVolume("d-1", func(pv *v1.PersistentVolume) { pv.Status.Phase = v1.VolumeAvailable })
		must(t, b.Volumes.Add(pv))
		b.VolumeChanged(nil, pv)
		b.Start(testClaim())
		_, _, _ = b.attempt(t.Context(), "0f1e")
		if got := b.state("0f1e"); got != test.state || len(b.driver.Created) > 0 {
			t.Errorf("%s: it is %s and the driver was asked %d times, want %s and never", what, got, len(b.driver.Created), test.state)
		}
	}
}

// A claim that is not bound yet gets another PersistentVolume for one that goes, which nobody here may have made; one that is bound doesn't.
func TestALostVolumeOfAnUnknownClaimIsReplaced(t *testing.T) {
	for what, test := range map[string]struct {
		change func(*v1.PersistentVolumeClaim)
		calls  int
	}{
		"not bound": {func(*v1.PersistentVolumeClaim) {}, 1},
		"bound":     {func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "d-1" }, 0},
		"another's": {func(c *v1.PersistentVolumeClaim) { c.Annotations[request.AnnStorageProvisioner] = "other" }, 0},
		"new":       {func(c *v1.PersistentVolumeClaim) { c.UID = "other" }, 0},
	} {
		b := newBench(t, []answer{made("d-2", 0, "zone-a")})
		claim := testClaim(test.change)
		claim.CreationTimestamp = metav1.NewTime(b.clock.Add(time.Hour))
		must(t, b.Classes.Add(testClass(nil)))
		must(t, b.Claims.Add(claim))
		must(t, b.api.Tracker().Add(claim))
		b.Lead()
		b.VolumeGone(testVolume("d-1"))
		b.takeAll(t)
		if calls := len(b.driver.Created); calls != test.calls {
			t.Errorf("%s: the driver was asked %d times, want %d", what, calls, test.calls)
		}
		for _, first := range b.driver.First {
			if first {
				t.Errorf("%s: it was said to be the first call, though there was a volume", what)
			}
		}
	}
}

// A PersistentVolume may be edited to name no claim, or another one: then it stands for the claim no more.
func TestAVolumeThatNoLongerNamesItsClaimIsReplaced(t *testing.T) {
	for what, change := range map[string]func(*v1.PersistentVolume){
		"none":    func(pv *v1.PersistentVolume) { pv.Spec.ClaimRef = nil },
		"another": func(pv *v1.PersistentVolume) { pv.Spec.ClaimRef.UID = "other" },
	} {
		b := newBench(t, []answer{made("d-2", 0, "zone-a")})
		claim := testClaim()
		pv := testVolume("d-1", func(pv *v1.PersistentVolume) { pv.Status.Phase = v1.VolumeAvailable })
		must(t, b.Classes.Add(testClass(nil)))
		must(t, b.Claims.Add(claim))
		must(t, b.Volumes.Add(pv))
		must(t, b.api.Tracker().Add(claim))
		b.Start(claim)
		if b.takeAll(t); b.state(claim.UID) != "saved" {
			t.Fatalf("the claim is %s", b.state(claim.UID))
		}
		b.VolumeChanged(pv, pv.DeepCopy())
		if b.takeAll(t); len(b.driver.Created) > 0 {
			t.Error("a volume that is the claim's as before is replaced")
		}
		freed := pv.DeepCopy()
		change(freed)
		must(t, b.Volumes.Update(freed))
		b.VolumeChanged(pv, freed)
		if b.takeAll(t); len(b.driver.Created) != 1 {
			t.Errorf("it names %s, and the driver is called %d times for the claim", what, len(b.driver.Created))
		}
	}
}

// Only the PersistentVolume that stood for a claim makes way for another one.
func TestAnotherVolumeThatGoesWakesNoClaim(t *testing.T) {
	b := newBench(t, []answer{made("d-1", 0, "zone-a")})
	if pv, _, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1"); pv == nil || err != nil {
		t.Fatalf("got %v, %v", pv, err)
	}
	b.takeAll(t) // that it was started
	b.VolumeGone(testVolume("d-0"))
	if n := b.queue.Len(); n != 0 {
		t.Errorf("%d claims are woken by a PersistentVolume that did not stand for it", n)
	}
	b.VolumeGone(testVolume("d-1"))
	if n := b.queue.Len(); n != 1 {
		t.Errorf("%d claims are woken by the one that did", n)
	}
}

func TestARecoveredClaimThatGoesBeforeTheLeadIsGone(t *testing.T) {
	b := newBench(t, []answer{refused(codes.InvalidArgument)})
	r := b.journalled(t, testClaim(), testClass(nil))
	must(t, b.Claims.Add(testClaim()))
	b.Recover(r)
	must(t, b.Claims.Delete(testClaim())) // no event tells of it
	b.Lead()
	b.takeAll(t)
	if state := b.state("0f1e"); state != "none" {
		t.Errorf("after the driver's refusal it is %s", state)
	}
}

func TestAClaimThatGoesBeforeItsTurnIsForgotten(t *testing.T) {
	b := newBench(t, []answer{made("d-1", 0, "zone-a")})
	must(t, b.Classes.Add(testClass(nil)))
	must(t, b.Claims.Add(testClaim()))
	b.Start(testClaim())
	must(t, b.Claims.Delete(testClaim())) // no event tells of it
	b.takeAll(t)
	if state, calls := b.state("0f1e"), len(b.driver.Created); state != "none" || calls != 0 {
		t.Errorf("it is %s, and the driver was asked %d times", state, calls)
	}
}

// What an informer delivers again wakes no claim, and neither does a change of another class or of a node that a claim doesn't wait for.
func TestOnlyWhatAClaimWaitsForWakesIt(t *testing.T) {
	b := newBench(t, nil)
	b.RetryStart, b.RetryMax = time.Hour, time.Hour
	b.zones.Err = &topology.Error{Reason: topology.NodeUnready}
	claim, class := testClaim(), testClass(nil)
	must(t, b.Classes.Add(class))
	must(t, b.Claims.Add(claim))
	b.Start(claim)
	b.takeAll(t)
	if state := b.state(claim.UID); state != "waiting" {
		t.Fatalf("it is %s", state)
	}
	wakes := func(what string, want int, do func()) {
		t.Helper()
		if do(); b.queue.Len() != want {
			t.Errorf("%s: %d claims are woken, want %d", what, b.queue.Len(), want)
		}
		b.takeAll(t)
	}
	resynced := func() { // it is looked at, in case something was missed, and no attempt is made
		asked := len(b.zones.Asked)
		b.ClaimChanged(claim, claim)
		if b.takeAll(t); len(b.zones.Asked) != asked {
			t.Error("an attempt is made because the informer shows the claim again")
		}
	}
	wakes("its node", 1, func() { b.NodeChanged("node-1") })
	wakes("another node", 0, func() { b.NodeChanged("node-2") })
	wakes("its class", 1, func() { b.ClassChanged("essd") })
	wakes("another class", 0, func() { b.ClassChanged("ssd") })
	wakes("the same claim again", 0, resynced)
	b.zones.Err = &topology.Error{Reason: topology.NoTopology}
	wakes("its class again", 1, func() { b.ClassChanged("essd") })
	wakes("any node, for which it waits now", 1, func() { b.NodeChanged("node-2") })
	wakes("the same claim once more", 0, resynced)
	b.zones.Err = nil
	b.driver.Creates = []answer{unavailable()}
	wakes("its node, where the driver is asked", 1, func() { b.NodeChanged("node-1") })
	wakes("its node, though a volume may be made", 0, func() { b.NodeChanged("node-1") })
	wakes("another node, though a volume may be made", 0, func() { b.NodeChanged("node-2") })
}

// What changes during the call wakes the claim once the answer says that there is no volume.
func TestAChangeDuringTheCallIsNotMissed(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*bench)
		want   int
	}{
		"its class":    {func(b *bench) { b.ClassChanged("essd") }, 1},
		"its node":     {func(b *bench) { b.NodeChanged("node-1") }, 1},
		"another node": {func(b *bench) { b.NodeChanged("node-2") }, 0},
	} {
		b := newBench(t, []answer{refused(codes.InvalidArgument)})
		b.RetryMax = 5 * time.Minute
		b.Driver = &hookedDriver{b.driver, "disk-0f1e", func() { test.change(b) }}
		claim := testClaim()
		must(t, b.Classes.Add(testClass(nil)))
		must(t, b.Claims.Add(claim))
		b.Start(claim)
		if b.next(t.Context()); b.queue.Len() != test.want {
			t.Errorf("%s: %d claims are woken, want %d", name, b.queue.Len(), test.want)
		}
	}
}

func TestANoteOnAClaimIsNoChange(t *testing.T) {
	b := newBench(t, []answer{refused(codes.InvalidArgument)})
	_, _, _ = b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
	seen := testClaim()
	for n, test := range []struct {
		change func(*v1.PersistentVolumeClaim)
		calls  int
	}{
		{func(c *v1.PersistentVolumeClaim) { c.Annotations["note"] = "1" }, 1},
		{func(c *v1.PersistentVolumeClaim) { c.Labels = map[string]string{"note": "1"} }, 1},
		{func(c *v1.PersistentVolumeClaim) { c.Finalizers = []string{"example.com/1"} }, 1},
		{func(c *v1.PersistentVolumeClaim) {
			c.Spec.Resources.Requests[v1.ResourceStorage] = resource.MustParse("30Gi")
		}, 2},
	} {
		old, now := seen.DeepCopy(), seen.DeepCopy()
		now.ResourceVersion = strconv.Itoa(2000 + n)
		test.change(now)
		for _, claim := range []*v1.PersistentVolumeClaim{old, now} {
			b.TrimClaim(claim)
		}
		must(t, b.Claims.Update(now))
		b.ClaimChanged(old, now)
		_, _, _ = b.attempt(t.Context(), now.UID)
		if calls, _ := b.driver.Calls(); calls != test.calls {
			t.Errorf("after %v: %d CreateVolume calls, want %d", now, calls, test.calls)
		}
	}
}

func TestAResyncDoesNotEndTheBackOff(t *testing.T) {
	b := newBench(t, []answer{refused(codes.Internal)})
	_, _, _ = b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
	shown := b.cached("0f1e")
	for _, test := range []struct {
		version, size string
		calls         int
	}{{shown.ResourceVersion, "20Gi", 1}, {"1008", "30Gi", 2}, {"1008", "30Gi", 2}} {
		claim := shown.DeepCopy()
		claim.ResourceVersion = test.version
		claim.Spec.Resources.Requests[v1.ResourceStorage] = resource.MustParse(test.size)
		must(t, b.Claims.Update(claim))
		b.ClaimChanged(shown, claim)
		shown = claim
		_, _, _ = b.attempt(t.Context(), claim.UID)
		if calls, _ := b.driver.Calls(); calls != test.calls {
			t.Errorf("version %s was shown: %d calls, want %d", test.version, calls, test.calls)
		}
	}
}

func TestOnlyItsOwnVolumeEndsAnAttempt(t *testing.T) {
	for name, c := range map[string]struct {
		annotation string
		open       int
	}{
		"its own":         {"disk-0f1e", 0},
		"somebody else's": {"", 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, []answer{unavailable()})
			_, _, _ = b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
			pv := testVolume("d-bp1", func(pv *v1.PersistentVolume) { pv.Annotations[request.AnnVolumeName] = c.annotation })
			must(t, b.Volumes.Add(pv))
			b.VolumeChanged(nil, pv)
			_, _, _ = b.attempt(t.Context(), "0f1e")
			if open := b.open(); open != c.open {
				t.Errorf("%d volumes are under way, want %d", open, c.open)
			}
		})
	}
}

func TestNoAttemptBeginsWhileDraining(t *testing.T) {
	b := newBench(t, []answer{made("d-bp1", 0, "zone-a")})
	must(t, b.Classes.Add(testClass(nil)))
	must(t, b.Claims.Add(testClaim()))
	b.queue.ShutDown()
	if b.ShouldStart(testClaim()) {
		t.Error("a claim was taken")
	}
	b.Start(testClaim())
	b.work(t.Context(), types.UID("0f1e"))
	if calls, _ := b.driver.Calls(); calls != 0 {
		t.Error("the driver was asked")
	}
}

// The driver ends with the process and cuts off its calls, which the next process repeats.
func TestACallThatIsCutOffAsTheProcessEndsIsNotTold(t *testing.T) {
	for name, c := range map[string]struct {
		answer answer
		ends   bool
		told   bool
	}{
		"cut off as the process ends": {unavailable(), true, false},
		"cut off":                     {unavailable(), false, true},
		"refused as the process ends": {refused(codes.InvalidArgument), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil, testClaim())
			b.Driver = &hookedDriver{&provisionertest.ScriptedDriver{Creates: []answer{c.answer}}, "disk-0f1e", func() {
				if c.ends {
					b.queue.ShutDown()
				}
			}}
			_, _, _ = b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
			if said := b.said(); strings.Contains(said, ReasonFailed) != c.told {
				t.Errorf("the claim's owner was told: %q", said)
			}
		})
	}
}

// Once the Lease is lost, what this process may not write is left to the next leader, which goes on.
func TestTheLossOfTheLeaseIsNotTold(t *testing.T) {
	lost := &url.Error{Op: "Post", URL: "https://10.0.0.1/", Err: leader.ErrLost}
	tooSmall := made("d-1", 1*gib, "zone-a")
	for name, c := range map[string]struct {
		answer         answer
		verb, resource string
	}{
		"while a volume is saved":                     {made("d-1", 20*gib, "zone-a"), "create", "persistentvolumes"},
		"while a claim is returned to the scheduler":  {soldOut(), "patch", "persistentvolumeclaims"},
		"while a volume that is too small is deleted": {tooSmall, "list", "persistentvolumes"}, // DeleteVolume is fenced, too
	} {
		for what, err := range map[string]error{"lost": lost, "taken over": fmt.Errorf("journal: %w", journal.ErrTakenOver)} {
			t.Run(name+", "+what, func(t *testing.T) {
				b := newBench(t, []answer{c.answer}, testClaim())
				b.api.PrependReactor(c.verb, c.resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
				_, _, failed := b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
				if said := b.said(); failed == nil || strings.Contains(said, err.Error()) {
					t.Errorf("the attempt ends with %v, and the claim's owner was told: %q", failed, said)
				}
			})
		}
	}
}

// Whoever changes a claim during each call, in a way that nothing is made from, does not get one call after the other.
func TestANoteDuringACallLeavesTheBackOff(t *testing.T) {
	for name, parameters := range map[string]map[string]string{
		"any class": nil,
		"a class that names its Secret by an annotation": {
			"csi.storage.k8s.io/provisioner-secret-name": "${pvc.annotations['team']}", "csi.storage.k8s.io/provisioner-secret-namespace": "vault"},
	} {
		t.Run(name, func(t *testing.T) {
			secret := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "vault", Name: testClaim().Annotations["team"]}}
			b := newBench(t, nil, testClaim(), secret)
			claim := testClaim(func(c *v1.PersistentVolumeClaim) { delete(c.Annotations, "team") }) // which the cache doesn't keep
			b.Driver = &hookedDriver{&provisionertest.ScriptedDriver{Creates: []answer{refused(codes.InvalidArgument)}}, "disk-0f1e", func() {
				noted := b.cached(claim.UID).DeepCopy()
				noted.ResourceVersion = "2000"
				old := b.cached(claim.UID)
				must(t, b.Claims.Update(noted))
				b.ClaimChanged(old, noted)
			}}
			_, _, err := b.provision(t.Context(), claim, testClass(parameters), "node-1")
			if e := b.claims[claim.UID]; err == nil || e == nil || e.woken || e.request != nil {
				t.Errorf("after %v the claim is %+v", err, e)
			}
		})
	}
}

// The library and the watch each tell of a new claim, in any order: one attempt is made.
func TestANewClaimIsTriedOnce(t *testing.T) {
	b := newBench(t, nil)
	class := testClass(nil)
	must(t, b.Classes.Add(class))
	claim := testClaim(func(c *v1.PersistentVolumeClaim) { c.Annotations[request.AnnSelectedNode] = "node-1" })
	must(t, b.Claims.Add(claim))
	driver := &provisionertest.ScriptedDriver{Creates: []answer{refused(codes.InvalidArgument)}}
	b.Driver = &hookedDriver{driver, "disk-0f1e", func() { b.ClaimChanged(nil, claim) }}
	b.Start(claim)
	b.ClaimChanged(nil, claim)
	b.takeAll(t)
	if calls := len(b.Driver.(*hookedDriver).Created); calls != 1 {
		t.Errorf("%d calls", calls)
	}
}
