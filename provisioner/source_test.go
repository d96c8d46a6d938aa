package provisioner

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
)

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
		provisionertest.AddSnapshot(t, b.dynamic, "shop", nil)
		must(t, b.metadata.Tracker().Add(provisionertest.SnapshotMetadata("shop")))
		filled := made("d-bp1", 0, "zone-a")
		filled.Volume.ContentSource = &csi.VolumeContentSource{}
		b.driver.Creates = []answer{filled}
		ctx, end := context.WithCancelCause(t.Context())
		wasProtected := false
		b.claims.Driver = endingDriver{b.driver, func() { wasProtected = provisionertest.IsProtected(t, b.metadata); end(nil) }}
		claim := provisionertest.Claim(provisionertest.FromSnapshot)
		b.show(t, provisionertest.Class(nil), claim)
		b.claims.Start(claim)
		b.work(ctx, end)
		saved, err := b.api.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
		if must(t, err); b.open() != 0 || len(saved.Items) != 1 || !wasProtected {
			t.Fatalf("%d volumes are under way, %d are saved; the source was protected: %t", b.open(), len(saved.Items), wasProtected)
		}
		if provisionertest.IsProtected(t, b.metadata) {
			t.Error("the finalizer is still there")
		}
	})
}
