package claim

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

// erasedJournal keeps the keys of the records that were deleted.
type erasedJournal struct {
	noJournal
	keys []string
}

func (j *erasedJournal) Delete(key string) { j.keys = append(j.keys, key) }

// P14: the claim is gone, which the cache shows while its PersistentVolume is saved or afterwards, and somebody else's PersistentVolume has the name of its disk.
func TestAnAttemptEndsIfItsNameIsTaken(t *testing.T) {
	foreign := func(change ...func(*v1.PersistentVolume)) *v1.PersistentVolume {
		return testVolume("d-bp1", append([]func(*v1.PersistentVolume){func(pv *v1.PersistentVolume) {
			pv.Annotations, pv.Spec.ClaimRef, pv.Status.Phase = nil, nil, v1.VolumeAvailable
		}}, change...)...)
	}
	other := func(pv *v1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "d-other" }
	anew := testClaim(func(c *v1.PersistentVolumeClaim) { c.UID = "other" })
	for name, test := range map[string]struct {
		foreign     *v1.PersistentVolume
		claim       *v1.PersistentVolumeClaim
		ends        bool
		wantDeletes int
	}{
		"it stands for the disk":             {foreign: foreign(), ends: true},
		"it stands for it, another driver's": {foreign: foreign(func(pv *v1.PersistentVolume) { pv.Spec.CSI.Driver = "other" }), ends: true},
		"it stands for another disk":         {foreign: foreign(other), ends: true, wantDeletes: 1},
		"the claim is there":                 {foreign: foreign(), claim: testClaim()},
		"the claim is there, another disk":   {foreign: foreign(other), claim: testClaim()},
		"it is still being deleted":          {foreign: foreign(func(pv *v1.PersistentVolume) { pv.DeletionTimestamp = ptr.To(metav1.Now()) })},
		"another claim has the name by now":  {foreign: foreign(), claim: anew, ends: true},
		"another one does, and another disk": {foreign: foreign(other), claim: anew, ends: true, wantDeletes: 1},
	} {
		isGone := test.claim == nil || test.claim.UID != testClaim().UID
		for _, seen := range []bool{false, true} {
			if seen && !isGone {
				continue
			}
			caption := name
			if seen {
				caption += ", as the cache shows meanwhile"
			}
			t.Run(caption, func(t *testing.T) {
				live := []runtime.Object{test.foreign}
				if test.claim != nil {
					live = append(live, test.claim)
				}
				b := newBench(t, []answer{made("d-bp1", 20*gib, "zone-a")}, live...)
				erased := &erasedJournal{}
				b.Journal = erased
				goes := func() {
					if must(t, b.Claims.Delete(testClaim())); test.claim != nil {
						must(t, b.Claims.Add(test.claim))
					}
				}
				b.api.PrependReactor("create", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
					if seen {
						goes()
					}
					return false, nil, nil
				})
				_, _, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
				if !seen && (err == nil || b.open() != 1) {
					t.Fatalf("%v; %d volumes are under way, want an error and 1", err, b.open())
				}
				if isGone && !seen {
					goes()
					b.ClaimGone(testClaim())
					_, _, _ = b.attempt(t.Context(), "0f1e")
				}
				if all := b.open(); (all == 0) != test.ends || slices.Equal(erased.keys, []string{"0f1e"}) != test.ends {
					t.Errorf("%d volumes are under way, the journal has lost %q", all, erased.keys)
				}
				if _, deletes := b.driver.Calls(); deletes != test.wantDeletes {
					t.Errorf("%d calls of DeleteVolume, want %d", deletes, test.wantDeletes)
				}
			})
		}
	}
}
