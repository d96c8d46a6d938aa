package provisioner

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

// P14: the claim is gone, and somebody else's PersistentVolume has the name of its disk.
func TestAnAttemptEndsIfItsNameIsTaken(t *testing.T) {
	foreign := func(change ...func(*v1.PersistentVolume)) *v1.PersistentVolume {
		return testVolume("d-bp1", append([]func(*v1.PersistentVolume){func(pv *v1.PersistentVolume) {
			pv.Annotations, pv.Spec.ClaimRef, pv.Status.Phase = nil, nil, v1.VolumeAvailable
		}}, change...)...)
	}
	other := func(pv *v1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "d-other" }
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
		"another claim has the name by now":  {foreign: foreign(), claim: testClaim(func(c *v1.PersistentVolumeClaim) { c.UID = "other" }), ends: true},
		"another one does, and another disk": {foreign: foreign(other), claim: testClaim(func(c *v1.PersistentVolumeClaim) { c.UID = "other" }), ends: true, wantDeletes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			live := []runtime.Object{test.foreign}
			if test.claim != nil {
				live = append(live, test.claim)
			}
			b := newBench(t, []answer{made("d-bp1", 20*gib, "zone-a")}, live...)
			if _, _, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1"); err == nil {
				t.Fatal("no error")
			}
			if all := b.open(); (all == 0) != test.ends {
				t.Errorf("%d volumes are under way", all)
			}
			if _, deletes := b.driver.calls(); deletes != test.wantDeletes {
				t.Errorf("%d calls of DeleteVolume, want %d", deletes, test.wantDeletes)
			}
		})
	}
}
