package claim

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
)

// deafDriver does not answer for claims of one namespace.
type deafDriver struct {
	*provisionertest.ScriptedDriver
	namespace string
	calls     provisionertest.Crowd
}

func (d *deafDriver) CreateVolume(ctx context.Context, in *csi.CreateVolumeRequest, options ...grpc.CallOption) (*csi.CreateVolumeResponse, error) {
	if strings.HasSuffix(in.Name, "-"+d.namespace) {
		defer d.calls.Enter()()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &csi.CreateVolumeResponse{Volume: made("d-"+in.Name, 20*gib, "zone-a").Volume}, nil
}

// A namespace whose claims all wait for the driver keeps those of another one waiting no moment.
func TestASmallNamespaceIsServedBesideALargeOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many, few = 3000, 10
		b := newBench(t, nil)
		driver := &deafDriver{ScriptedDriver: b.driver, namespace: "crowd"}
		b.Driver, b.Events, b.Now = driver, &record.FakeRecorder{}, time.Now
		class := testClass(nil)
		class.VolumeBindingMode = ptr.To(storagev1.VolumeBindingImmediate)
		must(t, b.Classes.Add(class))
		begin := func(namespace string, claims int) {
			for n := range claims {
				claim := claimIn(namespace, n)
				must(t, b.Claims.Add(claim))
				b.Start(claim)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { b.Run(ctx) })
		begin("crowd", many)
		time.Sleep(time.Second)
		began := time.Now()
		begin("shop", few)
		synctest.Wait()
		for n := range few {
			if state := b.state(claimIn("shop", n).UID); state != "saved" {
				t.Errorf("claim %d is %s", n, state)
			}
		}
		if now := int(driver.calls.Now.Load()); now != b.Workers+b.Workers/4 {
			t.Errorf("the driver has %d calls of the large namespace", now)
		}
		time.Sleep(time.Minute)
		if most := int(driver.calls.Most.Load()); most != b.Workers+b.Workers/4 || driver.calls.All.Load() == 0 {
			t.Errorf("the driver had %d calls of the large namespace at a time, and %d in all", most, driver.calls.All.Load())
		}
		cancel()
		run.Wait()
		if left := driver.calls.Now.Load(); left != 0 || time.Since(began) > time.Minute+b.Timeout {
			t.Errorf("after %v, %d calls are under way", time.Since(began), left)
		}
	})
}
