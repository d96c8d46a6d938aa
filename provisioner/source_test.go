package provisioner

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
	"github.com/topodisk/topodisk/provisioner/watch"
)

// addSnapshot adds a VolumeSnapshot that is ready.
func (b *bench) addSnapshot(t *testing.T) {
	t.Helper()
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

// endingDriver ends the leadership when it is asked for a volume, and takes its time to make it.
type endingDriver struct {
	*scriptedDriver
	end func()
}

func (d endingDriver) CreateVolume(ctx context.Context, in *csi.CreateVolumeRequest, opts ...grpc.CallOption) (*csi.CreateVolumeResponse, error) {
	d.end()
	time.Sleep(time.Minute)
	return d.scriptedDriver.CreateVolume(ctx, in, opts...)
}

func TestALeaderThatEndsReleasesItsSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLeader(t, func(c *Config) { c.DriverRestores = true })
		b.addSnapshot(t)
		filled := made("d-bp1", 0, "zone-a")
		filled.volume.ContentSource = &csi.VolumeContentSource{}
		b.driver.creates = []answer{filled}
		ctx, end := context.WithCancelCause(t.Context())
		wasProtected := false
		b.claims.Driver = endingDriver{b.driver, func() { wasProtected = b.isProtected(t); end(nil) }}
		claim := testClaim(provisionertest.FromSnapshot)
		b.show(t, testClass(nil), claim)
		b.claims.Start(claim)
		b.work(ctx, end)
		saved, err := b.api.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
		if must(t, err); b.open() != 0 || len(saved.Items) != 1 || !wasProtected {
			t.Fatalf("%d volumes are under way, %d are saved; the source was protected: %t", b.open(), len(saved.Items), wasProtected)
		}
		if b.isProtected(t) {
			t.Error("the finalizer is still there")
		}
	})
}
