package source

import (
	"errors"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
	"github.com/topodisk/topodisk/provisioner/request"
	"github.com/topodisk/topodisk/provisioner/watch"
)

var (
	snapshotSource = watch.Object{Resource: watch.VolumeSnapshots, Namespace: "shop", Name: "src"}
	claimSource    = watch.Object{Resource: watch.PersistentVolumeClaims, Namespace: "shop", Name: "src"}
)

// addMetadata adds an object to the API server where finalizers are written.
func (b *bench) addMetadata(t *testing.T, object *metav1.PartialObjectMetadata) {
	t.Helper()
	if err := b.metadata.Tracker().Add(object); err != nil {
		t.Fatal(err)
	}
}

// wantFinalizers compares the finalizers that a source has beside a foreign one.
func (b *bench) wantFinalizers(t *testing.T, o watch.Object, want ...string) {
	t.Helper()
	read, err := b.metadata.Resource(o.Resource).Namespace(o.Namespace).Get(t.Context(), o.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if want = append([]string{"other"}, want...); !slices.Equal(read.Finalizers, want) {
		t.Errorf("finalizers %v, want %v", read.Finalizers, want)
	}
}

func TestASourceIsProtectedUntilItsLastClaimEnds(t *testing.T) {
	b := newBench(t)
	b.addMetadata(t, provisionertest.SnapshotMetadata("shop"))
	first := provisionertest.Claim(provisionertest.FromSnapshot)
	second := provisionertest.Claim(provisionertest.FromSnapshot, func(c *v1.PersistentVolumeClaim) { c.UID = "second" })
	for _, claim := range []*v1.PersistentVolumeClaim{first, second, first} {
		if err := b.Protect(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
	}
	b.wantFinalizers(t, snapshotSource, snapshotFinalizer)
	b.Unprotect(first.UID)
	if n := b.queue.Len(); n != 0 {
		t.Errorf("%d sources are queued while a claim uses them", n)
	}
	b.Recheck(first)
	b.next(t.Context())
	b.wantFinalizers(t, snapshotSource, snapshotFinalizer)
	b.Unprotect(second.UID)
	b.next(t.Context())
	b.wantFinalizers(t, snapshotSource)
}

func TestARecoveredSourceStaysProtected(t *testing.T) {
	b := newBench(t)
	b.addMetadata(t, provisionertest.SnapshotMetadata("shop", snapshotFinalizer))
	claim := provisionertest.Claim(provisionertest.FromSnapshot)
	b.Recover(claim)
	b.Recheck(claim)
	b.next(t.Context())
	b.wantFinalizers(t, snapshotSource, snapshotFinalizer)
}

func TestProtectFails(t *testing.T) {
	deleted := provisionertest.SnapshotMetadata("shop")
	deleted.DeletionTimestamp = ptr.To(metav1.Now())
	for name, test := range map[string]struct {
		object *metav1.PartialObjectMetadata
		slow   bool
		waits  watch.Object
	}{
		"no such source":          {waits: snapshotSource},
		"it is being deleted":     {object: deleted, waits: snapshotSource},
		"it can't be written now": {object: provisionertest.SnapshotMetadata("shop"), slow: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			if test.object != nil {
				b.addMetadata(t, test.object)
			}
			if test.slow {
				b.metadata.PrependReactor("patch", "volumesnapshots", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, errors.New("etcd is slow")
				})
			}
			err := b.Protect(t.Context(), provisionertest.Claim(provisionertest.FromSnapshot))
			if err == nil || watch.NotReadyObject(err) != test.waits || len(b.sources) != 0 {
				t.Errorf("got %v, waiting for %v; in use: %v", err, watch.NotReadyObject(err), b.sources)
			}
		})
	}
}

func TestFinalizersOfAnEarlierProcessAreRemoved(t *testing.T) {
	type change = func(snapshot, content *unstructured.Unstructured)
	deleted := func(snapshot, _ *unstructured.Unstructured) { snapshot.SetDeletionTimestamp(ptr.To(metav1.Now())) }
	contentGone := func(snapshot, _ *unstructured.Unstructured) {
		setFields(snapshot, map[string]any{"status.boundVolumeSnapshotContentName": "gone"})
	}
	unbound := func(snapshot, _ *unstructured.Unstructured) {
		setFields(snapshot, map[string]any{"status": nil})
	}
	foreign := func(_, content *unstructured.Unstructured) {
		setFields(content, map[string]any{"spec.driver": "other"})
	}
	for name, test := range map[string]struct {
		changes []change
		want    []string
	}{
		"a snapshot":                                   {},
		"another driver's snapshot":                    {changes: []change{foreign}, want: []string{snapshotFinalizer}},
		"another's snapshot that is being deleted":     {changes: []change{foreign, deleted}, want: []string{snapshotFinalizer}},
		"a snapshot without its content":               {changes: []change{contentGone}, want: []string{snapshotFinalizer}},
		"the same, while it is being deleted":          {changes: []change{contentGone, deleted}},
		"a snapshot that never had one":                {changes: []change{unbound}, want: []string{snapshotFinalizer}},
		"one that never had one, and is being deleted": {changes: []change{unbound, deleted}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			provisionertest.AddSnapshot(t, b.dynamic, "shop", func(snapshot, content *unstructured.Unstructured) {
				for _, change := range test.changes {
					change(snapshot, content)
				}
			})
			b.addMetadata(t, provisionertest.SnapshotMetadata("shop", snapshotFinalizer))
			if err := b.enqueueSnapshots(t.Context()); err != nil {
				t.Fatal(err)
			}
			if b.queue.Len() > 0 {
				b.next(t.Context())
			}
			b.wantFinalizers(t, snapshotSource, test.want...)
		})
	}
	for name, test := range map[string]struct {
		provisioner string // that the claim names
		driver      string // of the PersistentVolume; empty: it is in no cache
		want        []string
	}{
		"a claim":                               {provisioner: provisionertest.DriverName, driver: provisionertest.DriverName},
		"a claim that was bound by hand":        {driver: provisionertest.DriverName},
		"a claim whose volume is gone":          {provisioner: provisionertest.DriverName},
		"another driver's claim":                {provisioner: "other", driver: "other", want: []string{request.CloneFinalizer}},
		"another's claim whose volume is gone":  {provisioner: "other", want: []string{request.CloneFinalizer}},
		"a claim with another driver's volume":  {provisioner: provisionertest.DriverName, driver: "other", want: []string{request.CloneFinalizer}},
		"a claim that took over another's disk": {provisioner: "other", driver: provisionertest.DriverName},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.addMetadata(t, provisionertest.Metadata("v1", "PersistentVolumeClaim", "shop", request.CloneFinalizer))
			claim, pv := sourceClaim()
			claim.DeletionTimestamp, claim.Finalizers = ptr.To(metav1.Now()), []string{request.CloneFinalizer}
			claim.Annotations = map[string]string{request.AnnStorageProvisioner: test.provisioner}
			if pv.Spec.CSI.Driver = test.driver; test.driver != "" {
				provisionertest.Must(t, b.volumes.Add(pv))
			}
			if b.ClaimChanged(claim); b.queue.Len() > 0 {
				b.next(t.Context())
			}
			b.wantFinalizers(t, claimSource, test.want...)
		})
	}
}

func TestASnapshotThatCannotBeReadIsReported(t *testing.T) {
	b := newBench(t)
	provisionertest.AddSnapshot(t, b.dynamic, "shop", nil)
	for _, namespace := range []string{"archive", "shop"} {
		b.addMetadata(t, provisionertest.SnapshotMetadata(namespace, snapshotFinalizer))
	}
	b.dynamic.PrependReactor("get", "volumesnapshots", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return action.GetNamespace() == "archive", nil, errors.New("etcd is slow")
	})
	if err := b.enqueueSnapshots(t.Context()); err == nil || !strings.Contains(err.Error(), "VolumeSnapshot archive/src: etcd is slow") || b.queue.Len() != 1 {
		t.Errorf("got %v; %d snapshots are queued, want the other one", err, b.queue.Len())
	}
}

// snapshot-controller writes to a snapshot at any moment: a conflict is no reason to fail the claim.
func TestAConflictIsRetried(t *testing.T) {
	b := newBench(t)
	b.addMetadata(t, provisionertest.SnapshotMetadata("shop"))
	conflicts := 2
	b.metadata.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		conflicts--
		return conflicts >= 0, nil, apierrors.NewConflict(watch.VolumeSnapshots.GroupResource(), "src", errors.New("it has changed"))
	})
	if err := b.Protect(t.Context(), provisionertest.Claim(provisionertest.FromSnapshot)); err != nil {
		t.Fatal(err)
	}
	b.wantFinalizers(t, snapshotSource, snapshotFinalizer)
}
