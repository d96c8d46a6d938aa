package provisioner

import (
	"context"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/attempt"
	"github.com/topodisk/topodisk/provisioner/request"
)

// recordingStore records the calls.
type recordingStore struct {
	noStore
	prefetched, written []string // records
	cancelled           []string
	deleted, lazily     []string
}

func (n *recordingStore) Prefetch(_ string, record []byte) {
	n.prefetched = append(n.prefetched, string(record))
}
func (n *recordingStore) Put(_ context.Context, _ string, record []byte) error {
	n.written = append(n.written, string(record))
	return nil
}
func (n *recordingStore) Cancel(key string)       { n.cancelled = append(n.cancelled, key) }
func (n *recordingStore) Delete(key string)       { n.deleted = append(n.deleted, key) }
func (n *recordingStore) DeleteLazily(key string) { n.lazily = append(n.lazily, key) }

func TestARequestIsPrefetchedIfTheCachesKnowAll(t *testing.T) {
	unassigned := func(c *v1.PersistentVolumeClaim) { delete(c.Annotations, request.AnnStorageProvisioner) }
	immediate := func(c *storagev1.StorageClass) { c.VolumeBindingMode = ptr.To(storagev1.VolumeBindingImmediate) }
	tests := map[string]struct {
		claim      func(*v1.PersistentVolumeClaim)
		class      func(*storagev1.StorageClass)
		before     func(*bench)
		prefetched bool
		cancelled  bool
	}{
		"it waits for its turn":    {prefetched: true},
		"its node is selected":     {claim: unassigned, prefetched: true},
		"it is new, and Immediate": {claim: func(c *v1.PersistentVolumeClaim) { c.Annotations = nil }, class: immediate, prefetched: true},
		"it has no node yet":       {claim: func(c *v1.PersistentVolumeClaim) { c.Annotations = nil }},
		"it is another's":          {claim: func(c *v1.PersistentVolumeClaim) { c.Annotations[request.AnnStorageProvisioner] = "other" }},
		"its class is another's":   {class: func(c *storagev1.StorageClass) { c.Provisioner = "other" }},
		"its class is unknown":     {claim: func(c *v1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr.To("none") }},
		"an annotation names its class": {claim: func(c *v1.PersistentVolumeClaim) {
			c.Annotations[v1.BetaStorageClassAnnotation], c.Spec.StorageClassName = *c.Spec.StorageClassName, nil
		}, prefetched: true},
		"it has no class":     {claim: func(c *v1.PersistentVolumeClaim) { c.Spec.StorageClassName = nil }},
		"it has a volume":     {claim: func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "d-1" }},
		"it is being deleted": {claim: func(c *v1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{Time: time.Now()} }},
		"it is filled from a snapshot": {claim: func(c *v1.PersistentVolumeClaim) {
			c.Spec.DataSource = &v1.TypedLocalObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: "nightly"}
		}},
		"it names attributes": {claim: func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = ptr.To("gold") }},
		"it is to be refused": {claim: func(c *v1.PersistentVolumeClaim) { c.Spec.Selector = &metav1.LabelSelector{} }},
		"it has a PersistentVolume": {before: func(b *bench) {
			b.attempts.Begin("0f1e", attempt.VolumeSeen{Volume: testVolume("d-0")})
			b.exec.work(t.Context(), "0f1e")
		}},
		"its volume is under way": {before: func(b *bench) {
			b.driver.creates = []answer{unavailable()}
			b.attempts.Begin("0f1e", attempt.Recovered{Request: plannedRequest(t, b)})
			b.exec.work(t.Context(), "0f1e")
		}},
		"its node has no zone":                        {before: func(b *bench) { b.zones.err = errString("no zone") }},
		"there was no disk to be had there just now":  {before: func(b *bench) { b.refusals.Refused(stockWant(plannedRequest(t, b)), b.now()) }},
		"there was none to be had for it on its node": {before: func(b *bench) { b.refusals.RefusedClaim(stockWant(plannedRequest(t, b)), b.now()) }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, []answer{made("d-bp1", 20*gib, "zone-a")})
			store := &recordingStore{}
			b.store = store
			claim, class := testClaim(), testClass(map[string]string{"type": "cloud_essd"})
			if test.claim != nil {
				test.claim(claim)
			}
			if test.class != nil {
				test.class(class)
			}
			must(t, b.resolver.classes.Add(class))
			if test.before != nil {
				test.before(b)
			}
			b.handlers().postClaim(claim)
			b.exec.work(t.Context(), claim.UID)
			if got := len(store.prefetched) == 1; got != test.prefetched || (len(store.cancelled) == 1) != test.cancelled {
				t.Fatalf("prefetched %v, cancelled %v", store.prefetched, store.cancelled)
			}
			if !test.prefetched {
				return
			}
			// Kubernetes writes the claim once more before its turn comes.
			claim = claim.DeepCopy()
			claim.ResourceVersion = "8"
			metav1.SetMetaDataAnnotation(&claim.ObjectMeta, request.AnnStorageProvisioner, driverName)
			if _, outcome, err := b.provision(t.Context(), claim, class, claim.Annotations[request.AnnSelectedNode]); outcome != attempt.Finished || err != nil {
				t.Fatalf("%v, %v", outcome, err)
			}
			if !slices.Equal(store.prefetched, store.written) {
				t.Errorf("prefetched was %v\nwritten %v", store.prefetched, store.written)
			}
		})
	}
}

func plannedRequest(t *testing.T, b *bench) *request.Request {
	t.Helper()
	return b.planned(t, testClaim(), testClass(nil)).Request
}

// planned is what is to be asked of the driver for the claim.
func (b *bench) planned(t *testing.T, claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass) attempt.Resolved {
	t.Helper()
	must(t, b.resolver.classes.Add(class))
	resolved := b.resolver.resolve(t.Context(), claim)
	must(t, resolved.Err)
	return resolved
}

func TestAPrefetchedRequestIsCancelled(t *testing.T) {
	b := newBench(t, nil)
	store := &recordingStore{}
	b.store = store
	must(t, b.resolver.classes.Add(testClass(nil)))
	b.handlers().postClaim(testClaim())
	b.exec.work(t.Context(), "0f1e")
	b.zones.err = errString("no zone")
	if _, _, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1"); err == nil || !slices.Equal(store.cancelled, []string{"0f1e"}) {
		t.Errorf("%v, cancelled %v", err, store.cancelled)
	}
}

func TestARecordIsErasedLazilyIfItsVolumeStays(t *testing.T) {
	for policy, leans := range map[v1.PersistentVolumeReclaimPolicy]bool{v1.PersistentVolumeReclaimDelete: true, v1.PersistentVolumeReclaimRetain: false} {
		t.Run(string(policy), func(t *testing.T) {
			b := newBench(t, []answer{made("d-bp1", 20*gib, "zone-a")})
			store := &recordingStore{}
			b.store = store
			class := testClass(nil)
			class.ReclaimPolicy = &policy
			if _, outcome, err := b.provision(t.Context(), testClaim(), class, "node-1"); outcome != attempt.Finished || err != nil {
				t.Fatalf("%v, %v", outcome, err)
			}
			if len(store.lazily) == 1 != leans || len(store.deleted) == 1 == leans {
				t.Errorf("lazily %v, at once %v", store.lazily, store.deleted)
			}
		})
	}
}
