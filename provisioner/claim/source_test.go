package claim

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
	"github.com/topodisk/topodisk/provisioner/source"
)

// addSnapshot adds a VolumeSnapshot that is ready, for a driver that restores it.
func (b *bench) addSnapshot(t *testing.T) {
	t.Helper()
	b.removeFinalizers() // ends the queue of the one that is replaced
	b.Sources = source.NewReader(source.Options{
		DriverName: provisionertest.DriverName, Snapshots: true, PreventModeConversion: true, RetryStart: time.Millisecond, RetryMax: time.Second,
	}, b.api, b.dynamic)
	b.Protection = source.NewProtection(b.metadata, b.Volumes, b.Sources)
	provisionertest.AddSnapshot(t, b.dynamic, "shop", nil)
	must(t, b.metadata.Tracker().Add(provisionertest.SnapshotMetadata("shop")))
}

func TestAVolumeWithoutItsContentIsDeleted(t *testing.T) {
	b := newBench(t, []answer{made("d-empty", 0, "zone-a")})
	b.addSnapshot(t)
	_, outcome, err := b.provision(t.Context(), testClaim(provisionertest.FromSnapshot), testClass(nil), "node-1")
	if outcome != noVolume || !strings.Contains(fmt.Sprint(err), "d-empty is empty") {
		t.Errorf("got %v, %v", outcome, err)
	}
	if _, deletes := b.driver.Calls(); deletes != 1 {
		t.Errorf("%d deletions", deletes)
	}
}

func TestASourceIsProtectedDuringAnAttempt(t *testing.T) {
	filled := made("d-bp1", 0, "zone-a")
	b := newBench(t, []answer{unavailable()})
	b.addSnapshot(t)
	claim := testClaim(provisionertest.FromSnapshot)
	try := func() outcome {
		_, meaning, _ := b.provision(t.Context(), claim, testClass(nil), "node-1")
		return meaning
	}
	if outcome := try(); outcome != maybeVolume || b.driver.Created[0].VolumeContentSource.GetSnapshot().GetSnapshotId() != "s-1" {
		t.Fatalf("got %v, asked for %v", outcome, b.driver.Created[0])
	}
	if !provisionertest.IsProtected(t, b.metadata) {
		t.Error("the finalizer is missing")
	}
	filled.Volume.ContentSource = b.driver.Created[0].VolumeContentSource
	b.driver.Creates = []answer{filled}
	if outcome := try(); outcome != noVolume {
		t.Fatalf("got %v", outcome)
	}
	if b.removeFinalizers(); provisionertest.IsProtected(t, b.metadata) {
		t.Error("the finalizer is still there")
	}
}

func TestProtectPrecedesCreateVolume(t *testing.T) {
	b := newBench(t, []answer{made("d-bp1", 0, "zone-a")})
	b.addSnapshot(t)
	b.metadata.PrependReactor("patch", "volumesnapshots", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("etcd is slow")
	})
	_, outcome, err := b.provision(t.Context(), testClaim(provisionertest.FromSnapshot), testClass(nil), "node-1")
	if creates, _ := b.driver.Calls(); outcome != notSent || !strings.Contains(fmt.Sprint(err), "the finalizer of VolumeSnapshot shop/src") || creates != 0 {
		t.Errorf("got %v, %v; the driver was asked %d times", outcome, err, creates)
	}
	if all := b.open(); all != 0 {
		t.Errorf("%d volumes are under way", all)
	}
}

func TestASourceOfARefusedRequestIsReleased(t *testing.T) {
	b := newBench(t, []answer{soldOut()})
	b.addSnapshot(t)
	for range 2 { // the second time the driver is not even asked
		_, outcome, _ := b.provision(t.Context(), testClaim(provisionertest.FromSnapshot), testClass(nil), "node-1")
		if outcome != otherNode {
			t.Fatalf("got %v", outcome)
		}
	}
	if b.removeFinalizers(); provisionertest.IsProtected(t, b.metadata) {
		t.Error("the finalizer is still there")
	}
}
