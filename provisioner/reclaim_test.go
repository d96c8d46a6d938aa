package provisioner

import (
	"context"
	"errors"
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

	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
)

func TestMayDelete(t *testing.T) {
	now := ptr.To(metav1.Now())
	tests := map[string]struct {
		change func(*v1.PersistentVolume)
		delete bool
		letGo  bool
		guard  bool // by the finalizer that it lacks
	}{
		"released":                      {change: func(*v1.PersistentVolume) {}, delete: true},
		"released and being deleted":    {change: func(pv *v1.PersistentVolume) { pv.DeletionTimestamp = now }, delete: true},
		"being deleted, no longer ours": {change: func(pv *v1.PersistentVolume) { pv.DeletionTimestamp, pv.Finalizers = now, nil }},
		"bound":                         {change: func(pv *v1.PersistentVolume) { pv.Status.Phase = v1.VolumeBound }},
		"bound and being deleted":       {change: func(pv *v1.PersistentVolume) { pv.Status.Phase, pv.DeletionTimestamp = v1.VolumeBound, now }},
		"bound, from before finalizers": {change: func(pv *v1.PersistentVolume) { pv.Status.Phase, pv.Finalizers = v1.VolumeBound, nil }, guard: true},
		"bound, retained, from before finalizers": {change: func(pv *v1.PersistentVolume) {
			pv.Status.Phase, pv.Finalizers, pv.Spec.PersistentVolumeReclaimPolicy = v1.VolumeBound, nil, v1.PersistentVolumeReclaimRetain
		}},
		"bound, being deleted, from before finalizers": {change: func(pv *v1.PersistentVolume) {
			pv.Status.Phase, pv.Finalizers, pv.DeletionTimestamp = v1.VolumeBound, nil, now
		}},
		"bound, static, without finalizer": {change: func(pv *v1.PersistentVolume) {
			pv.Status.Phase, pv.Finalizers, pv.Annotations = v1.VolumeBound, nil, nil
		}},
		"available": {change: func(pv *v1.PersistentVolume) { pv.Status.Phase = v1.VolumeAvailable }},
		"failed":    {change: func(pv *v1.PersistentVolume) { pv.Status.Phase = v1.VolumeFailed }},
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
		"made by another":   {change: func(pv *v1.PersistentVolume) { pv.Annotations[request.AnnProvisionedBy] = "other" }},
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
			if got := mayProtect(pv, driverName); got != test.guard {
				t.Errorf("mayProtect: %v", got)
			}
		})
	}
}

// reclaimBench is a reclaimer with a cache of its own and an API server that may differ from it.
func reclaimBench(t *testing.T, cached *v1.PersistentVolume, attachments []*storagev1.VolumeAttachment, live ...runtime.Object) (*bench, *reclaimer) {
	t.Helper()
	b := newBench(t, nil, live...)
	volumes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, watch.VolumeIndexers())
	attached := cache.NewIndexer(cache.MetaNamespaceKeyFunc, watch.AttachmentIndexers())
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

func TestAVolumeIsLetGoOnlyWhenNobodyWillMakeItAgain(t *testing.T) {
	pv := testVolume("d-bp1", func(pv *v1.PersistentVolume) {
		pv.Spec.PersistentVolumeReclaimPolicy, pv.DeletionTimestamp = v1.PersistentVolumeReclaimRetain, &metav1.Time{Time: time.Now()}
	})
	b, r := reclaimBench(t, pv, nil, pv.DeepCopy())
	b.journal.store = unflushedStore{}
	if err := r.reclaim(t.Context(), "d-bp1"); err == nil || len(steps(b)) != 0 {
		t.Errorf("%v; done was %v", err, steps(b))
	}
	b.journal.store = noStore{}
	if err := r.reclaim(t.Context(), "d-bp1"); err != nil || len(steps(b)) != 1 || len(b.driver.deleted) != 0 {
		t.Errorf("%v; done was %v", err, steps(b))
	}
}

// unflushedStore can't be written.
type unflushedStore struct{ noStore }

func (unflushedStore) Flush(context.Context, string) error { return errors.New("away") }

func TestTheDiskGoesFirstAndThePersistentVolumeLast(t *testing.T) {
	pv := testVolume("d-bp1", func(pv *v1.PersistentVolume) {
		pv.Annotations[request.AnnDeletionSecretName], pv.Annotations[request.AnnDeletionSecretNamespace] = "x", "vault"
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
	// The cache shows it being deleted for a moment longer.
	still := pv.DeepCopy()
	still.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	if err := errors.Join(r.volumes.Update(still), r.reclaim(t.Context(), "d-bp1")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, steps(b)); diff != "" {
		t.Errorf("what is over was asked for again: %s", diff)
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

func TestABoundVolumeThatLacksTheFinalizerGetsIt(t *testing.T) {
	pv := testVolume("d-bp1", func(pv *v1.PersistentVolume) {
		pv.Status.Phase, pv.Finalizers = v1.VolumeBound, []string{"kubernetes.io/pv-protection"}
	})
	b, r := reclaimBench(t, pv, nil, pv.DeepCopy())
	r.volumeChanged(pv)
	r.next(t.Context())
	want := []string{`patch d-bp1 {"metadata":{"uid":"uid-d-bp1","finalizers":["external-provisioner.volume.kubernetes.io/finalizer"]}}`}
	if diff := cmp.Diff(want, steps(b)); diff != "" {
		t.Error(diff)
	}
	live, err := b.api.CoreV1().PersistentVolumes().Get(t.Context(), "d-bp1", metav1.GetOptions{})
	if err != nil || !request.HasFinalizer(live) || len(live.Finalizers) != 2 {
		t.Errorf("got %v, %v", live, err)
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

func TestADiskIsDeletedWithTheSecretOfItsClassIfItsVolumeNamesNone(t *testing.T) {
	class := testClass(map[string]string{
		"csi.storage.k8s.io/provisioner-secret-name": "${pv.name}-${pvc.name}", "csi.storage.k8s.io/provisioner-secret-namespace": "${pvc.namespace}",
	})
	secret := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "disk-0f1e-data"}, Data: map[string][]byte{"k": []byte("v")}}
	old := func(pv *v1.PersistentVolume) {
		pv.Spec.StorageClassName, pv.Annotations[request.AnnVolumeName] = "essd", "disk-0f1e"
	}
	tests := map[string]struct {
		change func(*v1.PersistentVolume)
		live   []runtime.Object
		want   string // of the error; nothing: it is deleted
		waits  watch.Object
		secret string
	}{
		"of an old volume":     {change: old, live: []runtime.Object{class, secret}, secret: "v"},
		"the class names none": {change: old, live: []runtime.Object{testClass(nil)}},
		"the class is gone":    {change: old, want: "class essd is gone"},
		"the Secret is gone":   {change: old, live: []runtime.Object{class}, want: "secret shop/disk-0f1e-data", waits: watch.Object{Resource: watch.Secrets, Namespace: "shop", Name: "disk-0f1e-data"}},
		"no class":             {change: func(*v1.PersistentVolume) {}},
		"the volume says none": {change: func(pv *v1.PersistentVolume) { old(pv); pv.Annotations[request.AnnDeletionSecretName] = "" }, live: []runtime.Object{class, secret}},
		"the volume says another": {
			change: func(pv *v1.PersistentVolume) {
				old(pv)
				pv.Annotations[request.AnnDeletionSecretName], pv.Annotations[request.AnnDeletionSecretNamespace] = "x", "vault"
			},
			live: []runtime.Object{class, secret}, want: "secret vault/x", waits: watch.Object{Resource: watch.Secrets, Namespace: "vault", Name: "x"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			pv := testVolume("d-bp1", test.change)
			b, r := reclaimBench(t, pv, nil, append(test.live, pv.DeepCopy())...)
			err := r.reclaim(t.Context(), "d-bp1")
			if test.want != "" {
				if !strings.Contains(text(err), test.want) || notReadyObject(err) != test.waits || len(b.driver.deleted) > 0 {
					t.Errorf("got %v, waiting for %v, deleted %v", err, notReadyObject(err), b.driver.deleted)
				}
				return
			}
			if err != nil || len(b.driver.deleted) != 1 || b.driver.deleted[0].Secrets["k"] != test.secret {
				t.Errorf("got %v, deleted %v", err, b.driver.deleted)
			}
		})
	}
}

func TestAVolumeDeletedBeforeItsClaimWasBoundToIt(t *testing.T) {
	deleting := func(pv *v1.PersistentVolume) {
		pv.DeletionTimestamp, pv.Status.Phase, pv.Annotations[request.AnnVolumeName] = ptr.To(metav1.Now()), v1.VolumeAvailable, "disk-0f1e"
	}
	with := func(change func(*v1.PersistentVolume)) func(*v1.PersistentVolume) {
		return func(pv *v1.PersistentVolume) { deleting(pv); change(pv) }
	}
	for name, test := range map[string]struct {
		change         func(*v1.PersistentVolume)
		claim          *v1.PersistentVolumeClaim
		deleted, letGo bool
	}{
		"its claim is without it":              {change: deleting, claim: testClaim(), deleted: true, letGo: true},
		"it is pending":                        {change: with(func(pv *v1.PersistentVolume) { pv.Status.Phase = "" }), claim: testClaim(), deleted: true, letGo: true},
		"its claim is about to be bound":       {change: deleting, claim: testClaim(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "d-bp1" })},
		"its claim has another":                {change: deleting, claim: testClaim(func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "d-bp2" }), deleted: true, letGo: true},
		"its claim is gone, so it is released": {change: deleting},
		"its claim is another now":             {change: deleting, claim: testClaim(func(c *v1.PersistentVolumeClaim) { c.UID = "x" })},
		"it was not made for this claim":       {change: with(func(pv *v1.PersistentVolume) { pv.Annotations[request.AnnVolumeName] = "disk-old" }), claim: testClaim(), letGo: true},
		"it is for any claim":                  {change: with(func(pv *v1.PersistentVolume) { pv.Spec.ClaimRef = nil }), letGo: true},
		"it is retained": {change: with(func(pv *v1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimRetain
		}), claim: testClaim(), letGo: true},
		"it is bound":       {change: with(func(pv *v1.PersistentVolume) { pv.Status.Phase = v1.VolumeBound }), claim: testClaim()},
		"it is not deleted": {change: with(func(pv *v1.PersistentVolume) { pv.DeletionTimestamp = nil }), claim: testClaim()},
		"another driver's":  {change: with(func(pv *v1.PersistentVolume) { pv.Annotations[request.AnnProvisionedBy] = "other" }), claim: testClaim()},
	} {
		t.Run(name, func(t *testing.T) {
			pv := testVolume("d-bp1", test.change)
			live := []runtime.Object{pv.DeepCopy()}
			if test.claim != nil {
				live = append(live, test.claim)
			}
			b, r := reclaimBench(t, pv, nil, live...)
			r.volumeChanged(pv)
			for r.queue.Len() > 0 {
				r.next(t.Context())
			}
			if got := len(b.driver.deleted) > 0; got != test.deleted {
				t.Errorf("its disk was deleted: %v", got)
			}
			patched := false
			for _, step := range steps(b) {
				patched = patched || strings.HasPrefix(step, "patch d-bp1")
			}
			if patched != test.letGo {
				t.Errorf("it was let go: %v", patched)
			}
		})
	}
}
