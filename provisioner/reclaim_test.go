package provisioner

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

func TestMayDelete(t *testing.T) {
	now := ptr.To(metav1.Now())
	tests := map[string]struct {
		change func(*v1.PersistentVolume)
		delete bool
		letGo  bool
	}{
		"released":                      {change: func(*v1.PersistentVolume) {}, delete: true},
		"released and being deleted":    {change: func(pv *v1.PersistentVolume) { pv.DeletionTimestamp = now }, delete: true},
		"being deleted, no longer ours": {change: func(pv *v1.PersistentVolume) { pv.DeletionTimestamp, pv.Finalizers = now, nil }},
		"bound":                         {change: func(pv *v1.PersistentVolume) { pv.Status.Phase = v1.VolumeBound }},
		"bound and being deleted":       {change: func(pv *v1.PersistentVolume) { pv.Status.Phase, pv.DeletionTimestamp = v1.VolumeBound, now }},
		"available":                     {change: func(pv *v1.PersistentVolume) { pv.Status.Phase = v1.VolumeAvailable }},
		"failed":                        {change: func(pv *v1.PersistentVolume) { pv.Status.Phase = v1.VolumeFailed }},
		"retained": {change: func(pv *v1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimRetain
		}},
		"retained and being deleted": {change: func(pv *v1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy, pv.DeletionTimestamp = v1.PersistentVolumeReclaimRetain, now
		}, letGo: true},
		"recycled": {change: func(pv *v1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimRecycle
		}},
		"static":            {change: func(pv *v1.PersistentVolume) { pv.Annotations = nil }},
		"made by another":   {change: func(pv *v1.PersistentVolume) { pv.Annotations[annProvisionedBy] = "other" }},
		"of another driver": {change: func(pv *v1.PersistentVolume) { pv.Spec.CSI.Driver = "other" }},
		"no CSI volume":     {change: func(pv *v1.PersistentVolume) { pv.Spec.CSI = nil }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pv := testVolume("d-bp1", test.change)
			if got := mayDelete(pv, driverName); got != test.delete {
				t.Errorf("mayDelete: %v", got)
			}
			if got := mayLetGo(pv, driverName); got != test.letGo {
				t.Errorf("mayLetGo: %v", got)
			}
		})
	}
}

// reclaimBench is a reclaimer with a cache of its own and an API server that may differ from it.
func reclaimBench(t *testing.T, cached *v1.PersistentVolume, attachments []*storagev1.VolumeAttachment, live ...runtime.Object) (*bench, *reclaimer) {
	t.Helper()
	b := newBench(t, nil, live...)
	volumes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	attached := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{attachmentsByVolume: attachedVolume})
	for _, a := range attachments {
		if err := attached.Add(a); err != nil {
			t.Fatal(err)
		}
	}
	if err := volumes.Add(cached); err != nil {
		t.Fatal(err)
	}
	return b, newReclaimer(b.Provisioner, volumes, attached, func(string, time.Time, error) {})
}

// steps lists what was done, in order.
func steps(b *bench) []string {
	var list []string
	for _, action := range b.api.Actions() {
		switch a := action.(type) {
		case clienttesting.PatchAction:
			list = append(list, "patch "+a.GetName()+" "+string(a.GetPatch()))
		default:
			list = append(list, action.GetVerb()+" "+action.GetResource().Resource)
		}
	}
	return list
}

func TestTheDiskGoesFirstAndThePersistentVolumeLast(t *testing.T) {
	pv := testVolume("d-bp1", func(pv *v1.PersistentVolume) {
		pv.Annotations[annDeletionSecretName], pv.Annotations[annDeletionSecretNamespace] = "x", "vault"
	})
	secret := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "vault", Name: "x"}, Data: map[string][]byte{"k": []byte("v")}}
	b, r := reclaimBench(t, pv, nil, pv.DeepCopy(), secret)
	before := 0
	b.driver.onDelete = func() { before = len(b.api.Actions()) }
	if err := r.reclaim(t.Context(), "d-bp1"); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"get persistentvolumes", "get secrets", "delete persistentvolumes",
		`patch d-bp1 {"metadata":{"uid":"uid-d-bp1","$deleteFromPrimitiveList/finalizers":["external-provisioner.volume.kubernetes.io/finalizer"]}}`,
	}
	if diff := cmp.Diff(want, steps(b)); diff != "" {
		t.Error(diff)
	}
	if before != 2 {
		t.Errorf("DeleteVolume came after %d API calls, want 2", before)
	}
	if got := b.driver.deleted[0]; got.VolumeId != "d-bp1" || got.Secrets["k"] != "v" {
		t.Errorf("got %v", got)
	}
}

func TestNoDiskIsDeletedOnTheWordOfACacheAlone(t *testing.T) {
	for name, live := range map[string]func(*v1.PersistentVolume){
		"the policy was changed to Retain": func(pv *v1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimRetain
		},
		"it is bound again":                  func(pv *v1.PersistentVolume) { pv.Status.Phase = v1.VolumeBound },
		"it is another one of the same name": func(pv *v1.PersistentVolume) { pv.UID = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			b, r := reclaimBench(t, testVolume("d-bp1"), nil, testVolume("d-bp1", live))
			if err := r.reclaim(t.Context(), "d-bp1"); err != nil {
				t.Fatal(err)
			}
			if _, deletes := b.driver.calls(); deletes != 0 {
				t.Error("the disk was deleted")
			}
		})
	}
	t.Run("it is gone", func(t *testing.T) {
		b, r := reclaimBench(t, testVolume("d-bp1"), nil)
		if err := r.reclaim(t.Context(), "d-bp1"); err != nil {
			t.Fatal(err)
		}
		if _, deletes := b.driver.calls(); deletes != 0 {
			t.Error("the disk was deleted")
		}
	})
}

func TestAnAttachedDiskIsNotDeleted(t *testing.T) {
	attachment := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "csi-1"},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: driverName, NodeName: "node-1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("d-bp1")}},
	}
	b, r := reclaimBench(t, testVolume("d-bp1"), []*storagev1.VolumeAttachment{attachment}, testVolume("d-bp1"))
	err := r.reclaim(t.Context(), "d-bp1")
	if err == nil || !strings.Contains(err.Error(), "node-1") {
		t.Errorf("got %v", err)
	}
	if _, deletes := b.driver.calls(); deletes != 0 {
		t.Error("the disk was deleted")
	}
	r.attachmentGone(attachment)
	if r.queue.Len() != 1 {
		t.Error("the end of the attachment did not have the volume looked at again")
	}
}

func TestADeletionThatFailsIsToldAndLeavesThePersistentVolume(t *testing.T) {
	b, r := reclaimBench(t, testVolume("d-bp1"), nil, testVolume("d-bp1"))
	b.driver.deletes = []error{status.Error(codes.FailedPrecondition, "in use")}
	if err := r.reclaim(t.Context(), "d-bp1"); err == nil {
		t.Fatal("no error")
	}
	if diff := cmp.Diff([]string{"get persistentvolumes"}, steps(b)); diff != "" {
		t.Error(diff)
	}
	if events := b.drained(); len(events) != 1 || !strings.Contains(events[0], "VolumeFailedDelete") || !strings.Contains(events[0], "in use") {
		t.Errorf("events %q", events)
	}
}

func TestARetainedVolumeIsLetGoWithoutItsDisk(t *testing.T) {
	pv := testVolume("d-bp1", func(pv *v1.PersistentVolume) {
		pv.Spec.PersistentVolumeReclaimPolicy, pv.DeletionTimestamp = v1.PersistentVolumeReclaimRetain, ptr.To(metav1.Now())
	})
	b, r := reclaimBench(t, pv, nil, pv.DeepCopy())
	if err := r.reclaim(t.Context(), "d-bp1"); err != nil {
		t.Fatal(err)
	}
	if got := steps(b); len(got) != 1 || !strings.HasPrefix(got[0], "patch d-bp1") {
		t.Errorf("got %q", got)
	}
	if _, deletes := b.driver.calls(); deletes != 0 {
		t.Error("the disk was deleted")
	}
}

func TestTheReclaimerEndsWhenItsCallsAreAnswered(t *testing.T) {
	b, r := reclaimBench(t, testVolume("d-bp1"), nil, testVolume("d-bp1"))
	entered, release := make(chan struct{}), make(chan struct{})
	b.driver.onDelete = func() { close(entered); <-release }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { r.run(ctx); close(done) }()
	r.volumeChanged(testVolume("d-bp1"))
	<-entered
	cancel()
	select {
	case <-done:
		t.Fatal("it ended with a call under way")
	case <-time.After(20 * time.Millisecond):
	}
	close(release)
	<-done
	if got := steps(b); len(got) != 3 {
		t.Errorf("the volume under way was not brought to its end: %q", got)
	}
}
