package diskdriver

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs"
	"github.com/topodisk/topodisk/diskdriver/suspension"
	"github.com/topodisk/topodisk/diskdriver/volume"
	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/internal/unused"
)

// onSocket runs a driver on a socket of its own. end stops it and waits for its end.
func onSocket(t *testing.T, d *Driver) (conn *grpc.ClientConn, path string, end func()) {
	t.Helper()
	path = filepath.Join(shortDir(t), "csi.sock")
	listener, err := Listen("unix://" + path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx, listener, time.Minute) }()
	conn, err = grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn, path, func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("Run ended with %v", err)
		}
	}
}

// suspended deletes once the process was not running for a while, if it is told of that.
type suspended struct {
	slow
	suspend func()
}

func (s *suspended) Delete(ctx context.Context, _ disk.ID) error {
	if suspension.Happened(ctx) {
		return errors.New("suspended too early")
	}
	if s.suspend(); !suspension.Happened(ctx) {
		return errors.New("not told that the process was suspended")
	}
	return nil
}

func TestACallOnTheSocketIsToldThatTheProcessWasSuspended(t *testing.T) {
	disks := &suspended{}
	d, _ := newDriver(t, disks, &cloud{})
	disks.suspend = func() { d.watch.Beat(time.Now().Add(-time.Hour)) }
	conn, _, end := onSocket(t, d)
	defer end()
	if _, err := csi.NewControllerClient(conn).DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "d-1"}); err != nil {
		t.Error(err)
	}
}

func TestTheSocketAnswersAndCallsUnderWayAreDrained(t *testing.T) {
	disks := &slow{takes: time.Hour, released: make(chan struct{})}
	d, _ := newDriver(t, disks, &cloud{})
	conn, path, end := onSocket(t, d)
	info, err := csi.NewIdentityClient(conn).GetPluginInfo(t.Context(), &csi.GetPluginInfoRequest{})
	if err != nil || info.GetName() != DefaultName || info.GetManifest()[unused.ManifestKey] != "true" {
		t.Fatalf("got %v, %v", info, err)
	}
	deleted := make(chan error, 1)
	go func() {
		_, err := csi.NewControllerClient(conn).DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "d-1"})
		deleted <- err
	}()
	for testutil.ToFloat64(d.metrics.running.WithLabelValues("DeleteVolume")) == 0 {
		time.Sleep(time.Millisecond)
	}
	ended := make(chan struct{})
	go func() { end(); close(ended) }()
	for limit := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
			break
		}
		if time.Now().After(limit) {
			t.Error("the socket is left behind")
			break
		}
	}
	close(disks.released) // only now, when nobody is served any more
	if err := <-deleted; err != nil {
		t.Errorf("the call under way got %v", err)
	}
	<-ended
}

// What was proved for one connection is nothing to the next: in between another replica may have been called.
func TestAConnectionIsTrustedNoLongerThanItLasts(t *testing.T) {
	s := &story{t: t, key: "secret"}
	sim, err := ecssim.New(ecssim.Config{
		Region: "cn-hangzhou", Zones: []string{"cn-hangzhou-a"}, AccessKeys: map[string]string{"story": "secret"},
		Instances: []ecssim.Instance{{ID: "i-a1", Zone: "cn-hangzhou-a", Type: "ecs.g6.large"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	client, err := ecs.NewClient(ecs.Config{Region: "cn-hangzhou", ClusterID: cluster, Credentials: s, Transport: sim})
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(Config{Version: "test", Region: "cn-hangzhou", ClusterID: cluster}, client)
	if err != nil {
		t.Fatal(err)
	}
	spec := disk.Spec{Name: "disk-1", Tags: disk.Tags{disk.HistoryTag: string(disk.HistoryNew), disk.OwnerTag: cluster}}
	made, err := client.Create(t.Context(), spec, disk.Attempt{Zone: "cn-hangzhou-a", Category: "cloud_ssd", Size: 20}, "t")
	if err != nil {
		t.Fatal(err)
	}
	first, path, end := onSocket(t, d)
	defer end()
	call := func(conn *grpc.ClientConn, publish bool) (err error) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		controller := csi.NewControllerClient(conn)
		if publish {
			req := &csi.ControllerPublishVolumeRequest{VolumeId: string(made.ID), NodeId: "i-a1", VolumeCapability: s.capability(nil)}
			_, err = controller.ControllerPublishVolume(ctx, req)
		} else {
			_, err = controller.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: string(made.ID), NodeId: "i-a1"})
		}
		return err
	}
	for _, publish := range []bool{true, false, false} {
		if err := call(first, publish); err != nil {
			t.Fatalf("publish %v: %v", publish, err)
		}
	}
	second, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if err := call(second, false); status.Code(err) != codes.Aborted {
		t.Errorf("over another connection: %v, though what another replica has sent may be under way", err)
	}
}

// forgetful panics after ECS has made the disk, the first time, and in every list.
type forgetful struct {
	volume.ECS
	made []disk.Token
}

func (f *forgetful) Named(context.Context, string, bool) ([]disk.Disk, error) { return nil, nil }

func (f *forgetful) List(context.Context) ([]disk.Disk, error) { panic("no such list") }

func (f *forgetful) Create(_ context.Context, spec disk.Spec, try disk.Attempt, token disk.Token) (disk.Disk, error) {
	f.made = append(f.made, token)
	if len(f.made) == 1 {
		panic("after the call")
	}
	return disk.Disk{ID: "d-1", Name: spec.Name, Zone: try.Zone, Category: try.Category, PerformanceLevel: try.Level, Size: try.Size, State: disk.Available, Tags: spec.Tags}, nil
}

// Whoever takes a panic after CreateDisk for the end of it forgets a disk. Upstream's sidecars take Internal and
// Unknown for the end.
func TestAPanicIsNoEndOfACall(t *testing.T) {
	disks := &forgetful{}
	d, _ := newDriver(t, disks, &cloud{})
	conn, _, end := onSocket(t, d)
	defer end()
	client := csi.NewControllerClient(conn)
	req := &csi.CreateVolumeRequest{
		Name: "disk-1", Parameters: map[string]string{"type": "cloud_essd"}, CapacityRange: &csi.CapacityRange{RequiredBytes: 20 << 30},
		VolumeCapabilities: []*csi.VolumeCapability{{
			AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
			AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
		}},
		AccessibilityRequirements: &csi.TopologyRequirement{Requisite: []*csi.Topology{{Segments: map[string]string{"topology.kubernetes.io/zone": "cn-hangzhou-a"}}}},
	}
	_, err := client.CreateVolume(t.Context(), req)
	if code := status.Code(err); code != codes.Unavailable || len(disks.made) != 1 {
		t.Errorf("a panic after %d creates is answered %s: %v", len(disks.made), code, err)
	}
	if _, err := client.ListVolumes(t.Context(), &csi.ListVolumesRequest{}); status.Code(err) != codes.Internal {
		t.Errorf("a panic of a call that changes nothing is answered %v", err)
	}
	if _, err := client.CreateVolume(t.Context(), req); err != nil || len(disks.made) != 2 || disks.made[0] != disks.made[1] {
		t.Errorf("the same call again: %v, under the tokens %q", err, disks.made)
	}
}

func TestCallsThatDoNotEndAreCutOff(t *testing.T) {
	d, _ := newDriver(t, &slow{takes: time.Hour}, &cloud{})
	path := filepath.Join(shortDir(t), "csi.sock")
	listener, err := Listen("unix://" + path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx, listener, 10*time.Millisecond) }()
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	deleted := make(chan error, 1)
	go func() {
		_, err := csi.NewControllerClient(conn).DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{VolumeId: "d-1"})
		deleted <- err
	}()
	for testutil.ToFloat64(d.metrics.running.WithLabelValues("DeleteVolume")) == 0 {
		time.Sleep(time.Millisecond)
	}
	stop()
	if code := status.Code(<-deleted); code != codes.Unavailable && code != codes.DeadlineExceeded {
		t.Errorf("the call that was cut off got %v, which looks final", code)
	}
	if err := <-ended; err != nil {
		t.Errorf("Run ended with %v", err)
	}
}

func TestListenRemovesADeadSocketAndNothingElse(t *testing.T) {
	dir := shortDir(t)
	path := filepath.Join(dir, "csi.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen("unix://" + path); err == nil || !strings.Contains(err.Error(), "another process serves "+path) {
		t.Errorf("a socket that is served: %v", err)
	}
	dead.SetUnlinkOnClose(false)
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	listener, err := Listen("unix:" + path)
	if err != nil {
		t.Fatalf("a dead socket: %v", err)
	}
	listener.Close()
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen("unix://" + path); err == nil || !strings.Contains(err.Error(), "is no socket") {
		t.Errorf("a file: %v", err)
	}
	if content, err := os.ReadFile(path); err != nil || string(content) != "precious" {
		t.Errorf("the file is gone: %q, %v", content, err)
	}
	for _, endpoint := range []string{"", "/csi/csi.sock", "tcp://127.0.0.1:1", "unix://csi.sock", "unix:///csi/"} {
		if _, err := Listen(endpoint); err == nil || !strings.Contains(err.Error(), "unix:///csi/csi.sock") {
			t.Errorf("endpoint %q: %v", endpoint, err)
		}
	}
}

// shortDir returns a directory with room for a socket's path, which has about
// a hundred bytes.
func shortDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "csi")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
