package provisioner

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"

	"github.com/topodisk/topodisk/provisioner/deletion"
	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
)

// slowDriver takes its time for each call.
type slowDriver struct {
	*scriptedDriver
	each time.Duration
}

func (d slowDriver) CreateVolume(ctx context.Context, in *csi.CreateVolumeRequest, opts ...grpc.CallOption) (*csi.CreateVolumeResponse, error) {
	time.Sleep(d.each)
	return d.scriptedDriver.CreateVolume(ctx, in, opts...)
}

func (d slowDriver) DeleteVolume(ctx context.Context, in *csi.DeleteVolumeRequest, opts ...grpc.CallOption) (*csi.DeleteVolumeResponse, error) {
	time.Sleep(d.each)
	return d.scriptedDriver.DeleteVolume(ctx, in, opts...)
}

func TestALeaderWithASlowDriverIsHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newLeader(t, func(c *Config) { c.Timeout, c.Workers = 10*time.Minute, 1 })
		b.driver.Creates = []answer{made("d-small", gib, "zone-a")}
		slow := slowDriver{b.driver, b.config.Timeout}
		b.claims.Driver, b.claims.Deleter = slow, deletion.NewDeleter(b.api, slow, b.config.Timeout)
		b.show(t, provisionertest.Class(nil), provisionertest.NumberedClaim(1, "20Gi"), provisionertest.NumberedClaim(2, "20Gi"))
		b.claims.Start(provisionertest.NumberedClaim(1, "20Gi"))
		end := b.provisions(t.Context())
		time.Sleep(time.Minute)
		b.claims.Start(provisionertest.NumberedClaim(2, "20Gi"))
		for range 45 {
			time.Sleep(time.Minute)
			must(t, b.Healthy())
		}
		if _, deletes := b.driver.Calls(); deletes < 2 {
			t.Errorf("%d volumes were deleted", deletes)
		}
		end()
	})
}
