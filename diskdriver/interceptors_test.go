package diskdriver

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/params"
	"github.com/topodisk/topodisk/diskdriver/volume"
)

// slow deletes for as long as it is told, or until it is released, or panics.
type slow struct {
	volume.ECS
	takes    time.Duration
	released chan struct{}
	panics   bool
}

func (s *slow) GetCached(ctx context.Context, id disk.ID) (disk.Disk, error) { return s.Get(ctx, id) }

func (s *slow) Get(_ context.Context, id disk.ID) (disk.Disk, error) {
	return disk.Disk{ID: id, State: disk.Available, Tags: disk.Tags{disk.OwnerTag: cluster}}, nil
}

func (s *slow) Delete(ctx context.Context, id disk.ID) error {
	if s.panics {
		panic("no such case")
	}
	select {
	case <-time.After(s.takes):
		return nil
	case <-s.released:
		return nil
	case <-ctx.Done():
		return &disk.Error{Op: "DeleteDisk", Disk: id, Kind: disk.UnknownOutcome, Err: ctx.Err()}
	}
}

// others are the roles of ECS that a test doesn't play.
type others struct{ ECS }

func newDriver(t *testing.T, disks volume.ECS, c Cloud) (*Driver, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	d, err := New(Config{Region: "cn-hangzhou", ClusterID: cluster, Registerer: registry}, struct {
		volume.ECS
		Cloud
		others
	}{disks, c, others{}})
	if err != nil {
		t.Fatal(err)
	}
	return d, registry
}

// through has a request pass the driver's interceptors, as gRPC's server does.
func through(d *Driver) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		for _, outer := range slices.Backward(d.interceptors()) {
			inner := handler
			handler = func(ctx context.Context, req any) (any, error) { return outer(ctx, req, info, inner) }
		}
		return handler(ctx, req)
	}
}

func (d *Driver) delete(ctx context.Context, id string) error {
	_, err := through(d)(ctx, &csi.DeleteVolumeRequest{VolumeId: id}, &grpc.UnaryServerInfo{FullMethod: "/csi.v1.Controller/DeleteVolume"},
		func(ctx context.Context, req any) (any, error) {
			return d.controller.DeleteVolume(ctx, req.(*csi.DeleteVolumeRequest))
		})
	return err
}

func TestASecondOperationOnAVolumeIsAborted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, registry := newDriver(t, &slow{takes: time.Minute}, &cloud{})
		first := make(chan error, 1)
		go func() { first <- d.delete(t.Context(), "d-1") }()
		synctest.Wait()
		if err := d.delete(t.Context(), "d-1"); status.Code(err) != codes.Aborted || !strings.Contains(err.Error(), "d-1") {
			t.Errorf("the second delete of d-1 got %v", err)
		}
		if err := testutil.GatherAndCompare(registry, strings.NewReader("# HELP topodisk_csi_calls_in_flight CSI calls in progress by method.\n# TYPE topodisk_csi_calls_in_flight gauge\ntopodisk_csi_calls_in_flight{method=\"DeleteVolume\"} 1\n"), "topodisk_csi_calls_in_flight"); err != nil {
			t.Error(err)
		}
		if err := d.delete(t.Context(), "d-2"); err != nil {
			t.Errorf("another volume got %v", err)
		}
		if err := <-first; err != nil {
			t.Errorf("the first delete got %v", err)
		}
		if err := d.delete(t.Context(), "d-1"); err != nil {
			t.Errorf("a delete after the first one got %v", err)
		}
	})
}

func TestANameIsNotTakenForAnID(t *testing.T) {
	if targetOf(&csi.CreateVolumeRequest{Name: "d-1"}) == targetOf(&csi.DeleteVolumeRequest{VolumeId: "d-1"}) {
		t.Error("creating the name d-1 and deleting the ID d-1 shut each other out")
	}
}

func TestAPanicIsUnknownCountedAndLetsTheVolumeGo(t *testing.T) {
	disks := &slow{panics: true}
	d, registry := newDriver(t, disks, &cloud{})
	if err := d.delete(t.Context(), "d-1"); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "DeleteVolume panicked: no such case") {
		t.Errorf("got %v", err)
	}
	disks.panics = false
	if err := d.delete(t.Context(), "d-1"); err != nil {
		t.Errorf("the next call got %v", err)
	}
	want := `
# HELP topodisk_csi_calls_in_flight CSI calls in progress by method.
# TYPE topodisk_csi_calls_in_flight gauge
topodisk_csi_calls_in_flight{method="DeleteVolume"} 0
# HELP topodisk_csi_panics_total CSI calls whose handler panicked.
# TYPE topodisk_csi_panics_total counter
topodisk_csi_panics_total 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "topodisk_csi_calls_in_flight", "topodisk_csi_panics_total"); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(registry, "topodisk_csi_call_duration_seconds"); err != nil || n != 2 {
		t.Errorf("%d series of call times, want one for the panic and one for OK (%v)", n, err)
	}
}

func TestUnknownMethodsShareOneMetricLabel(t *testing.T) {
	m := newMetrics()
	for _, method := range []string{"/x/One", "/x/Two"} {
		_, _ = m.report(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) { return nil, nil })
	}
	if n := testutil.CollectAndCount(m.seconds); n != 1 {
		t.Errorf("%d series", n)
	}
}

func TestTheLogHoldsNoSecrets(t *testing.T) {
	var log strings.Builder
	captureLog(t, &log)
	_, _ = newMetrics().report(t.Context(), &csi.CreateVolumeRequest{Name: "disk-1", Secrets: map[string]string{"key": "hush"}}, &grpc.UnaryServerInfo{FullMethod: "/csi.v1.Controller/CreateVolume"},
		func(context.Context, any) (any, error) { return nil, errors.New("refused") })
	klog.Flush()
	if !strings.Contains(log.String(), "disk-1") || !strings.Contains(log.String(), "refused") || strings.Contains(log.String(), "hush") {
		t.Errorf("logged %q", log.String())
	}
}

// U9: whoever looks for a volume, a claim or a node in the log finds it in a field of its own.
func TestACallIsLoggedByFields(t *testing.T) {
	made := &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: "d-1"}}
	for _, call := range []struct {
		method        string
		req, response any
		want          string
	}{
		{"CreateVolume", &csi.CreateVolumeRequest{Name: "disk-1", Parameters: map[string]string{params.ClaimName: "data", params.ClaimNamespace: "shop"}}, made,
			`method="CreateVolume" name="disk-1" volume="d-1" claim="shop/data" code="OK" duration=`},
		{"ControllerPublishVolume", &csi.ControllerPublishVolumeRequest{VolumeId: "d-1", NodeId: "i-1"}, &csi.ControllerPublishVolumeResponse{},
			`method="ControllerPublishVolume" volume="d-1" node="i-1" code="OK" duration=`},
		{"CreateSnapshot", &csi.CreateSnapshotRequest{Name: "snap-1", SourceVolumeId: "d-1"}, &csi.CreateSnapshotResponse{Snapshot: &csi.Snapshot{SnapshotId: "s-1"}},
			`method="CreateSnapshot" name="snap-1" volume="d-1" snapshot="s-1" code="OK" duration=`},
		{"DeleteSnapshot", &csi.DeleteSnapshotRequest{SnapshotId: "s-1"}, nil,
			`err="rpc error: code = NotFound desc = gone" method="DeleteSnapshot" snapshot="s-1" code="NotFound" duration=`},
	} {
		var log strings.Builder
		captureLog(t, &log)
		_, _ = newMetrics().report(t.Context(), call.req, &grpc.UnaryServerInfo{FullMethod: "/csi.v1.Controller/" + call.method}, func(context.Context, any) (any, error) {
			if call.response == nil {
				return nil, status.Error(codes.NotFound, "gone")
			}
			return call.response, nil
		})
		klog.Flush()
		if !strings.Contains(log.String(), call.want) || strings.Contains(log.String(), "{") {
			t.Errorf("logged %q, want %q and no request in JSON", log.String(), call.want)
		}
	}
}
