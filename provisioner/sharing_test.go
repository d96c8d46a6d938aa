package provisioner

import (
	"errors"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/request"
)

// second returns another PersistentVolume of disk d-bp1.
func second(change ...func(*v1.PersistentVolume)) *v1.PersistentVolume {
	return testVolume("restored", append([]func(*v1.PersistentVolume){func(pv *v1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "d-bp1" }}, change...)...)
}

func TestASecondVolumeKeepsTheDisk(t *testing.T) {
	phase := func(phase v1.PersistentVolumePhase) func(*v1.PersistentVolume) {
		return func(pv *v1.PersistentVolume) { pv.Status.Phase = phase }
	}
	retain := func(pv *v1.PersistentVolume) {
		pv.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimRetain
	}
	deleting := func(pv *v1.PersistentVolume) { pv.DeletionTimestamp = ptr.To(metav1.Now()) }
	static := func(pv *v1.PersistentVolume) { pv.Annotations, pv.Finalizers = nil, nil }
	tests := map[string]struct {
		other *v1.PersistentVolume // as the cache shows it
		live  *v1.PersistentVolume // as it is, if that differs
		gone  bool                 // though the cache shows it
		claim *v1.PersistentVolumeClaim
		kept  bool
	}{
		"bound":                          {other: second(phase(v1.VolumeBound)), kept: true},
		"bound, and static":              {other: second(phase(v1.VolumeBound), static), kept: true},
		"available":                      {other: second(phase(v1.VolumeAvailable)), kept: true},
		"just made":                      {other: second(phase("")), kept: true},
		"failed":                         {other: second(phase(v1.VolumeFailed)), kept: true},
		"bound, and being deleted":       {other: second(phase(v1.VolumeBound), deleting), kept: true},
		"released, and retained":         {other: second(retain), kept: true},
		"released, and static":           {other: second(static), kept: true},
		"released, and to be deleted":    {other: second()},
		"released, and being deleted":    {other: second(deleting)},
		"released, gone a moment ago":    {other: second(), gone: true},
		"released, retained by now":      {other: second(), live: second(retain), kept: true},
		"released, bound by now":         {other: second(), live: second(phase(v1.VolumeBound)), kept: true},
		"needless":                       {other: second(phase(v1.VolumeAvailable), deleting, madeForClaim), claim: testClaim()},
		"needless, about to be bound":    {other: second(phase(v1.VolumeAvailable), deleting, madeForClaim), claim: testClaim(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "restored" }), kept: true},
		"another driver's":               {other: second(phase(v1.VolumeBound), func(pv *v1.PersistentVolume) { pv.Spec.CSI.Driver = "other" })},
		"of another disk":                {other: testVolume("d-cp1", phase(v1.VolumeBound))},
		"of a disk that ends like d-bp1": {other: testVolume("d-xbp1", phase(v1.VolumeBound))},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pv := testVolume("d-bp1")
			live := []runtime.Object{pv.DeepCopy()}
			switch {
			case test.live != nil:
				live = append(live, test.live)
			case !test.gone:
				live = append(live, test.other.DeepCopy())
			}
			if test.claim != nil {
				live = append(live, test.claim)
			}
			b, r := reclaimBench(t, pv, nil, live...)
			must(t, r.volumes.Add(test.other))
			err := r.reclaim(t.Context(), "d-bp1")
			events := b.drained()
			if _, deletes := b.driver.calls(); (deletes == 0) != test.kept {
				t.Fatalf("%d calls of DeleteVolume, %v", deletes, err)
			}
			told := len(events) == 1 && strings.Contains(events[0], reasonKept) && strings.Contains(events[0], "PersistentVolume restored")
			if told != test.kept || test.kept != (err != nil) {
				t.Errorf("%v, events %q", err, events)
			}
		})
	}
}

// madeForClaim makes the PersistentVolume one that was made for the claim that it names.
func madeForClaim(pv *v1.PersistentVolume) { pv.Annotations[request.AnnVolumeName] = "disk-0f1e" }

func TestTheDiskGoesWithTheLastVolume(t *testing.T) {
	other := second(func(pv *v1.PersistentVolume) { pv.Status.Phase = v1.VolumeBound })
	for name, ends := range map[string]func(*testing.T, *bench, *reclaimer, *Controller){
		"the other is gone": func(t *testing.T, b *bench, r *reclaimer, c *Controller) {
			must(t, errors.Join(r.volumes.Delete(other), b.api.CoreV1().PersistentVolumes().Delete(t.Context(), other.Name, metav1.DeleteOptions{})))
			c.volumeGone(other)
		},
		"the other is released": func(t *testing.T, b *bench, r *reclaimer, c *Controller) {
			released := second()
			_, err := b.api.CoreV1().PersistentVolumes().Update(t.Context(), released, metav1.UpdateOptions{})
			must(t, errors.Join(err, r.volumes.Update(released)))
			c.volumeChanged(released)
		},
	} {
		t.Run(name, func(t *testing.T) {
			pv := testVolume("d-bp1")
			b, r := reclaimBench(t, pv, nil, pv.DeepCopy(), other.DeepCopy())
			defer r.queue.ShutDown()
			failures := 0
			r.observe = func(string, time.Time, error) { failures++ }
			must(t, r.volumes.Add(other))
			r.volumeChanged(pv)
			r.next(t.Context())
			if _, deletes := b.driver.calls(); deletes != 0 || failures != 0 || r.queue.NumRequeues(pv.Name) != 0 {
				t.Fatalf("%d calls, %d deletions counted, %d times tried again", deletes, failures, r.queue.NumRequeues(pv.Name))
			}
			ends(t, b, r, &Controller{p: b.Provisioner, reclaimer: r, lib: &library{}})
			for r.queue.Len() > 0 {
				r.next(t.Context())
			}
			if _, deletes := b.driver.calls(); deletes == 0 {
				t.Error("the disk is still there, and nobody looks at it")
			}
		})
	}
}

func TestADiskAttachedByItsSecondVolumeIsKept(t *testing.T) {
	pv, other := testVolume("d-bp1"), second()
	attachment := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "csi-2"},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: driverName, NodeName: "node-2", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &other.Name}},
	}
	b, r := reclaimBench(t, pv, []*storagev1.VolumeAttachment{attachment}, pv.DeepCopy(), other.DeepCopy())
	must(t, r.volumes.Add(other))
	if err := r.reclaim(t.Context(), "d-bp1"); !strings.Contains(text(err), "node-2") || len(b.driver.deleted) > 0 {
		t.Errorf("%v, deleted %v", err, b.driver.deleted)
	}
}

// A cache that does not show the volume as it is may lack another that is older than that.
func TestADiskIsKeptWhileTheCacheLags(t *testing.T) {
	pv := testVolume("d-bp1", func(pv *v1.PersistentVolume) { pv.ResourceVersion = "10" })
	live := pv.DeepCopy()
	live.ResourceVersion = "12"
	b, r := reclaimBench(t, pv, nil, live)
	if err := r.reclaim(t.Context(), "d-bp1"); !strings.Contains(text(err), "lags behind") || len(b.driver.deleted) > 0 {
		t.Errorf("%v, deleted %v", err, b.driver.deleted)
	}
	bound := second(func(pv *v1.PersistentVolume) { pv.Status.Phase, pv.ResourceVersion = v1.VolumeBound, "11" })
	must(t, errors.Join(r.volumes.Add(bound), r.volumes.Update(live)))
	if err := r.reclaim(t.Context(), "d-bp1"); !strings.Contains(text(err), "restored") || len(b.driver.deleted) > 0 {
		t.Errorf("%v, deleted %v", err, b.driver.deleted)
	}
}

// P15: a deletion that came to nothing is no deletion.
func TestARefusedDeletionIsNotCounted(t *testing.T) {
	for name, live := range map[string]func(*v1.PersistentVolume){
		"retained by now": func(pv *v1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimRetain
		},
		"bound by now": func(pv *v1.PersistentVolume) { pv.Status.Phase = v1.VolumeBound },
	} {
		t.Run(name, func(t *testing.T) {
			_, r := reclaimBench(t, testVolume("d-bp1"), nil, testVolume("d-bp1", live))
			r.observe = func(string, time.Time, error) { t.Error("a deletion was counted") }
			must(t, r.reclaim(t.Context(), "d-bp1"))
		})
	}
}

// P14: the claim is gone, and somebody else's PersistentVolume has the name of its disk.
func TestAnOrderEndsThoughItsNameIsTaken(t *testing.T) {
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
			if all, _ := b.journal.underWay(); (all == 0) != test.ends {
				t.Errorf("%d orders are under way", all)
			}
			if _, deletes := b.driver.calls(); deletes != test.wantDeletes {
				t.Errorf("%d calls of DeleteVolume, want %d", deletes, test.wantDeletes)
			}
		})
	}
}
