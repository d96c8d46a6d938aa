package claim

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
	"github.com/topodisk/topodisk/provisioner/source"
	"github.com/topodisk/topodisk/provisioner/watch"
)

var fromSnapshot = provisionertest.FromSnapshot

// addSnapshot adds a VolumeSnapshot that is ready, for a driver that restores it.
func (b *bench) addSnapshot(t *testing.T) {
	t.Helper()
	b.removeFinalizers() // ends the queue of the one that is replaced
	b.Sources = source.NewReader(source.Options{DriverName: driverName, Snapshots: true, PreventModeConversion: true}, b.api, b.dynamic)
	options := source.ProtectionOptions{RetryStart: time.Millisecond, RetryMax: time.Second}
	b.Protection = source.NewProtection(options, b.metadata, b.Volumes, b.Sources)
	snapshot, content := provisionertest.Snapshot("shop")
	for _, err := range []error{
		b.dynamic.Tracker().Create(watch.VolumeSnapshots, snapshot, "shop"), b.dynamic.Tracker().Create(watch.VolumeSnapshotContents, content, ""),
		b.metadata.Tracker().Add(provisionertest.SnapshotMetadata("shop")),
	} {
		must(t, err)
	}
}

// isProtected says whether the VolumeSnapshot has the finalizer.
func (b *bench) isProtected(t *testing.T) bool {
	t.Helper()
	snapshot, err := b.metadata.Resource(watch.VolumeSnapshots).Namespace("shop").Get(t.Context(), "src", metav1.GetOptions{})
	must(t, err)
	return slices.Contains(snapshot.Finalizers, "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection")
}

func TestAVolumeWithoutItsContentIsDeleted(t *testing.T) {
	b := newBench(t, []answer{made("d-empty", 0, "zone-a")})
	b.addSnapshot(t)
	_, outcome, err := b.provision(t.Context(), testClaim(fromSnapshot), testClass(nil), "node-1")
	if outcome != noVolume || !strings.Contains(text(err), "d-empty is empty") {
		t.Errorf("got %v, %v", outcome, err)
	}
	if _, deletes := b.driver.calls(); deletes != 1 {
		t.Errorf("%d deletions", deletes)
	}
}

func TestASourceIsProtectedDuringAnAttempt(t *testing.T) {
	filled := made("d-bp1", 0, "zone-a")
	b := newBench(t, []answer{unavailable()})
	b.addSnapshot(t)
	claim := testClaim(fromSnapshot)
	try := func() outcome {
		_, meaning, _ := b.provision(t.Context(), claim, testClass(nil), "node-1")
		return meaning
	}
	if outcome := try(); outcome != maybeVolume || b.driver.created[0].VolumeContentSource.GetSnapshot().GetSnapshotId() != "s-1" {
		t.Fatalf("got %v, asked for %v", outcome, b.driver.created[0])
	}
	if !b.isProtected(t) {
		t.Error("the finalizer is missing")
	}
	filled.volume.ContentSource = b.driver.created[0].VolumeContentSource
	b.driver.creates = []answer{filled}
	if outcome := try(); outcome != noVolume {
		t.Fatalf("got %v", outcome)
	}
	if b.removeFinalizers(); b.isProtected(t) {
		t.Error("the finalizer is still there")
	}
}

func TestProtectPrecedesCreateVolume(t *testing.T) {
	b := newBench(t, []answer{made("d-bp1", 0, "zone-a")})
	b.addSnapshot(t)
	b.metadata.PrependReactor("patch", "volumesnapshots", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errString("etcd is slow")
	})
	_, outcome, err := b.provision(t.Context(), testClaim(fromSnapshot), testClass(nil), "node-1")
	if creates, _ := b.driver.calls(); outcome != notSent || !strings.Contains(text(err), "the finalizer of VolumeSnapshot shop/src") || creates != 0 {
		t.Errorf("got %v, %v; the driver was asked %d times", outcome, err, creates)
	}
	if all := b.open(); all != 0 {
		t.Errorf("%d volumes are under way", all)
	}
}

func TestASourceOfARefusedRequestIsReleased(t *testing.T) {
	b := newBench(t, []answer{soldOutAnswer()})
	b.addSnapshot(t)
	for range 2 { // the second time the driver is not even asked
		_, outcome, _ := b.provision(t.Context(), testClaim(fromSnapshot), testClass(nil), "node-1")
		if outcome != otherNode {
			t.Fatalf("got %v", outcome)
		}
	}
	if b.removeFinalizers(); b.isProtected(t) {
		t.Error("the finalizer is still there")
	}
}
