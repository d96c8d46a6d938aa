package deletion

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
	"github.com/topodisk/topodisk/provisioner/request"
)

// second returns another PersistentVolume of disk d-bp1.
func second(change ...func(*v1.PersistentVolume)) *v1.PersistentVolume {
	sameDisk := func(pv *v1.PersistentVolume) { pv.Spec.CSI.VolumeHandle = "d-bp1" }
	return provisionertest.Volume("restored", append([]func(*v1.PersistentVolume){sameDisk}, change...)...)
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
	anothers := func(pv *v1.PersistentVolume) { pv.Spec.CSI.Driver = "other" }
	tests := map[string]struct {
		other *v1.PersistentVolume // as the cache shows it
		live  *v1.PersistentVolume // as it is, if that differs
		gone  bool                 // though the cache shows it
		claim *v1.PersistentVolumeClaim
		kept  bool
	}{
		"bound":                       {other: second(phase(v1.VolumeBound)), kept: true},
		"bound, and static":           {other: second(phase(v1.VolumeBound), static), kept: true},
		"available":                   {other: second(phase(v1.VolumeAvailable)), kept: true},
		"just made":                   {other: second(phase("")), kept: true},
		"failed":                      {other: second(phase(v1.VolumeFailed)), kept: true},
		"bound, and being deleted":    {other: second(phase(v1.VolumeBound), deleting), kept: true},
		"released, and retained":      {other: second(retain), kept: true},
		"released, and static":        {other: second(static)},
		"released, and to be deleted": {other: second()},
		"released, and being deleted": {other: second(deleting)},
		"released, gone a moment ago": {other: second(), gone: true},
		"released, retained by now":   {other: second(), live: second(retain), kept: true},
		"released, bound by now":      {other: second(), live: second(phase(v1.VolumeBound)), kept: true},
		"unused":                      {other: second(phase(v1.VolumeAvailable), deleting, madeForClaim), claim: provisionertest.Claim()},
		"unused, about to be bound": {
			other: second(phase(v1.VolumeAvailable), deleting, madeForClaim),
			claim: provisionertest.Claim(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "restored" }), kept: true,
		},
		"another driver's":               {other: second(phase(v1.VolumeBound), anothers), kept: true},
		"another driver's, released":     {other: second(anothers), kept: true},
		"of another disk":                {other: provisionertest.Volume("d-cp1", phase(v1.VolumeBound))},
		"of a disk that ends like d-bp1": {other: provisionertest.Volume("d-xbp1", phase(v1.VolumeBound))},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pv := provisionertest.Volume("d-bp1")
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
			b := newBench(t, pv, nil, live...)
			must(t, b.Volumes.Add(test.other))
			err := b.sync(t.Context(), "d-bp1")
			events := provisionertest.Events(b.events)
			if deletes := b.driver.Deletes(); (deletes == 0) != test.kept {
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

func TestTheDiskIsDeletedWithItsLastVolume(t *testing.T) {
	other := second(func(pv *v1.PersistentVolume) { pv.Status.Phase = v1.VolumeBound })
	for name, ends := range map[string]func(*testing.T, *bench){
		"the other is gone": func(t *testing.T, b *bench) {
			must(t, errors.Join(b.Volumes.Delete(other), b.api.CoreV1().PersistentVolumes().Delete(t.Context(), other.Name, metav1.DeleteOptions{})))
			b.VolumeDeleted(other)
		},
		"the other is released": func(t *testing.T, b *bench) {
			released := second()
			_, err := b.api.CoreV1().PersistentVolumes().Update(t.Context(), released, metav1.UpdateOptions{})
			must(t, errors.Join(err, b.Volumes.Update(released)))
			b.VolumeChanged(released)
		},
	} {
		t.Run(name, func(t *testing.T) {
			pv := provisionertest.Volume("d-bp1")
			b := newBench(t, pv, nil, pv.DeepCopy(), other.DeepCopy())
			failures := 0
			b.Observe = func(string, time.Time, error) { failures++ }
			must(t, b.Volumes.Add(other))
			b.VolumeChanged(pv)
			b.next(t.Context())
			if deletes := b.driver.Deletes(); deletes != 0 || failures != 0 || b.queue.NumRequeues(pv.Name) != 0 {
				t.Fatalf("%d calls, %d deletions counted, %d times tried again", deletes, failures, b.queue.NumRequeues(pv.Name))
			}
			ends(t, b)
			for b.queue.Len() > 0 {
				b.next(t.Context())
			}
			if deletes := b.driver.Deletes(); deletes == 0 {
				t.Error("the disk is still there, and nobody looks at it")
			}
		})
	}
}

func TestADiskAttachedByItsSecondVolumeIsKept(t *testing.T) {
	pv, other := provisionertest.Volume("d-bp1"), second()
	attachment := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "csi-2"},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: provisionertest.DriverName, NodeName: "node-2", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &other.Name},
		},
	}
	b := newBench(t, pv, []*storagev1.VolumeAttachment{attachment}, pv.DeepCopy(), other.DeepCopy())
	must(t, b.Volumes.Add(other))
	if err := b.sync(t.Context(), "d-bp1"); !strings.Contains(fmt.Sprint(err), "node-2") || len(b.driver.Deleted) > 0 {
		t.Errorf("%v, deleted %v", err, b.driver.Deleted)
	}
}

// A cache that does not show the volume as it is may lack another that is older than that.
func TestADiskIsKeptWhileTheCacheIsStale(t *testing.T) {
	pv := provisionertest.Volume("d-bp1", func(pv *v1.PersistentVolume) { pv.ResourceVersion = "10" })
	live := pv.DeepCopy()
	live.ResourceVersion = "12"
	b := newBench(t, pv, nil, live)
	if err := b.sync(t.Context(), "d-bp1"); !strings.Contains(fmt.Sprint(err), "lags behind") || len(b.driver.Deleted) > 0 {
		t.Errorf("%v, deleted %v", err, b.driver.Deleted)
	}
	bound := second(func(pv *v1.PersistentVolume) { pv.Status.Phase, pv.ResourceVersion = v1.VolumeBound, "11" })
	must(t, errors.Join(b.Volumes.Add(bound), b.Volumes.Update(live)))
	if err := b.sync(t.Context(), "d-bp1"); !strings.Contains(fmt.Sprint(err), "restored") || len(b.driver.Deleted) > 0 {
		t.Errorf("%v, deleted %v", err, b.driver.Deleted)
	}
}

// P15: a deletion that came to nothing is no deletion.
func TestASkippedDeletionIsNotCounted(t *testing.T) {
	for name, live := range map[string]func(*v1.PersistentVolume){
		"retained by now": func(pv *v1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimRetain
		},
		"bound by now": func(pv *v1.PersistentVolume) { pv.Status.Phase = v1.VolumeBound },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, provisionertest.Volume("d-bp1"), nil, provisionertest.Volume("d-bp1", live))
			b.Observe = func(string, time.Time, error) { t.Error("a deletion was counted") }
			must(t, b.sync(t.Context(), "d-bp1"))
		})
	}
}
