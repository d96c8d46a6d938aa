package provisioner

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"

	"github.com/topodisk/topodisk/provisioner/attempt"
	"github.com/topodisk/topodisk/provisioner/deletion"
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
		b, c := newLeader(t)
		b.exec.queue.ShutDown()
		b.config.Timeout, b.config.Workers = 10*time.Minute, 1
		b.restart()
		b.exec.trace = func(types.UID, attempt.Action) {}
		c.exec = b.exec
		b.driver.creates = []answer{made("d-small", gib, "zone-a")}
		b.deleter = deletion.NewDeleter(b.api, slowDriver{b.driver, b.config.Timeout}, b.config.Timeout)
		b.Provisioner.driver = slowDriver{b.driver, b.config.Timeout}
		must(t, b.resolver.classes.Add(testClass(nil)))
		b.exec.Start(claimOf(1, "20Gi"))
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { b.exec.run(ctx) })
		time.Sleep(time.Minute)
		b.exec.Start(claimOf(2, "20Gi"))
		for range 45 {
			time.Sleep(time.Minute)
			must(t, c.Healthy())
		}
		if _, deletes := b.driver.calls(); deletes < 2 {
			t.Errorf("%d volumes were deleted", deletes)
		}
		cancel()
		run.Wait()
	})
}

// hangingStore takes a record when its caller gives up.
type hangingStore struct{ noStore }

func (hangingStore) Put(ctx context.Context, _ string, _ []byte) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestAnActionThatHangsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, nil)
		b.store = hangingStore{}
		begin := time.Now()
		_, _, err := b.provision(t.Context(), testClaim(), testClass(nil), "node-1")
		if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took != b.config.actionTimeout() {
			t.Errorf("after %s: %v", took, err)
		}
	})
}
