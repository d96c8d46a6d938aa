package csiconn

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	csimetrics "github.com/kubernetes-csi/csi-lib-utils/metrics"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/topodisk/topodisk/internal/unused"
	"github.com/topodisk/topodisk/provisioner/internal/provisionertest"
)

const driverName = "diskplugin.csi.alibabacloud.com"

// plugin is a CSI driver on a real socket.
type plugin struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	name       string
	noTopology bool
	noCreate   bool
	unready    atomic.Bool
	held       chan struct{} // CreateVolume is answered when it is closed; nil: at once
	refusal    error         // of CreateVolume
	named      func()        // is called before GetPluginInfo is answered; nil: nothing
	manifest   map[string]string
	begun      atomic.Int32 // calls of CreateVolume
	deleted    atomic.Int32 // calls of DeleteVolume
}

func (p *plugin) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(!p.unready.Load())}, nil
}

func (p *plugin) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	if p.named != nil {
		p.named()
	}
	return &csi.GetPluginInfoResponse{Name: p.name, VendorVersion: "1", Manifest: p.manifest}, nil
}

func (p *plugin) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	types := []csi.PluginCapability_Service_Type{csi.PluginCapability_Service_CONTROLLER_SERVICE}
	if !p.noTopology {
		types = append(types, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	}
	response := &csi.GetPluginCapabilitiesResponse{}
	for _, t := range types {
		response.Capabilities = append(response.Capabilities, &csi.PluginCapability{
			Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: t}},
		})
	}
	return response, nil
}

func (p *plugin) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	response := &csi.ControllerGetCapabilitiesResponse{}
	if !p.noCreate {
		response.Capabilities = append(response.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME}},
		})
	}
	return response, nil
}

func (p *plugin) CreateVolume(context.Context, *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	p.begun.Add(1)
	if p.held != nil {
		<-p.held
	}
	if p.refusal != nil {
		return nil, p.refusal
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: "d-of-" + p.name}}, nil
}

func (p *plugin) DeleteVolume(context.Context, *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	p.deleted.Add(1)
	return &csi.DeleteVolumeResponse{}, nil
}

// serve lets a plugin answer on the socket until stop is called.
func serve(t *testing.T, socket string, p *plugin) (stop func()) {
	t.Helper()
	return server(t, socket, p).Stop
}

func server(t *testing.T, socket string, p *plugin) *grpc.Server {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, p)
	csi.RegisterControllerServer(server, p)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return server
}

func connect(ctx context.Context, socket, wanted string) (*Connection, error) {
	return Connect(ctx, socket, wanted, 5*time.Second, csimetrics.NewCSIMetricsManagerForSidecar(""), Always)
}

func TestConnectWaitsForTheSocketAndForReadiness(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "csi.sock")
	p := &plugin{name: driverName}
	p.unready.Store(true)
	type result struct {
		c   *Connection
		err error
	}
	done := make(chan result, 1)
	go func() {
		c, err := connect(t.Context(), socket, "")
		done <- result{c, err}
	}()
	select {
	case r := <-done:
		t.Fatalf("it did not wait for the socket: %v", r.err)
	case <-time.After(100 * time.Millisecond):
	}
	serve(t, socket, p)
	select {
	case r := <-done:
		t.Fatalf("it did not wait for readiness: %v", r.err)
	case <-time.After(100 * time.Millisecond):
	}
	p.unready.Store(false)
	r := <-done
	if r.err != nil || r.c.Name() != driverName || !r.c.Can().Topology {
		t.Fatalf("got %+v", r)
	}
	if response, err := r.c.CreateVolume(t.Context(), &csi.CreateVolumeRequest{}); err != nil || response.Volume.VolumeId != "d-of-"+driverName {
		t.Errorf("got %v, %v", response, err)
	}
	_ = r.c.Close()
}

func TestConnectRefusesAnotherDriver(t *testing.T) {
	tests := map[string]struct {
		plugin *plugin
		want   []string
	}{
		"another name":    {&plugin{name: "other.csi"}, []string{"other.csi", "not " + driverName}},
		"makes no volume": {&plugin{name: driverName, noCreate: true}, []string{driverName, "CREATE_DELETE_VOLUME"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "csi.sock")
			serve(t, socket, test.plugin)
			_, err := connect(t.Context(), socket, driverName)
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not say %q", err, want)
				}
			}
		})
	}
}

func TestConnectEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := connect(ctx, filepath.Join(t.TempDir(), "none.sock"), ""); err == nil {
		t.Error("no error")
	}
}

func TestAReconnectedDriverIsVerified(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "csi.sock")
	stop := serve(t, socket, &plugin{name: driverName})
	c, err := connect(t.Context(), socket, "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	create := func() (*csi.CreateVolumeResponse, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		return c.CreateVolume(ctx, &csi.CreateVolumeRequest{})
	}
	stop()
	provisionertest.Eventually(t, "the connection was invalidated", func() bool {
		_, err := create()
		if status.Code(err) != codes.Unavailable {
			t.Fatalf("without a driver: %v", err)
		}
		return IsNotAsked(err) // it is not if the call was sent on the old connection
	})
	stop = serve(t, socket, &plugin{name: "other.csi"})
	provisionertest.Eventually(t, "the impostor was refused", func() bool {
		response, err := create()
		if response != nil {
			t.Fatalf("the impostor was asked for a volume: %v", response)
		}
		return status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "other.csi")
	})
	stop()
	serve(t, socket, &plugin{name: driverName})
	provisionertest.Eventually(t, "the driver was back", func() bool { _, err := create(); return err == nil })
}

// TestAnswersOfATerminatingDriverCount ends a driver, which takes no new calls then, while it makes a volume. Another one is on
// the socket before it answers.
// P8: whoever waits for the driver hears when it is back, though nobody calls it meanwhile.
func TestTheReturnOfTheDriverIsNoticed(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "csi.sock")
	stop := serve(t, socket, &plugin{name: driverName})
	c, err := connect(t.Context(), socket, "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	back := make(chan error, 1)
	go func() { back <- c.AwaitReturn(t.Context()) }()
	stop()
	provisionertest.Eventually(t, "the driver was away", func() bool { return c.conn.GetState() != connectivity.Ready })
	select {
	case err := <-back:
		t.Fatalf("it is back while it is away: %v", err)
	case <-time.After(2 * reconnectInterval):
	}
	serve(t, socket, &plugin{name: driverName})
	if err := <-back; err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { back <- c.AwaitReturn(ctx) }()
	cancel()
	if err := <-back; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestAnswersOfATerminatingDriverCount(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "csi.sock")
	p := &plugin{name: driverName, held: make(chan struct{})}
	ending := server(t, socket, p)
	c, err := connect(t.Context(), socket, "")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	type answer struct {
		volume string
		err    error
	}
	answers := make(chan answer)
	go func() {
		response, err := c.CreateVolume(t.Context(), &csi.CreateVolumeRequest{})
		answers <- answer{response.GetVolume().GetVolumeId(), err}
	}()
	provisionertest.Eventually(t, "the driver was asked", func() bool { return p.begun.Load() == 1 })
	go ending.GracefulStop()
	provisionertest.Eventually(t, "the connection took no new calls", func() bool { return c.conn.GetState() != connectivity.Ready })
	serve(t, socket, &plugin{name: driverName})
	provisionertest.Eventually(t, "the next driver answered", func() bool {
		_, err := c.CreateVolume(t.Context(), &csi.CreateVolumeRequest{})
		return err == nil
	})
	close(p.held)
	if got := <-answers; got.err != nil || got.volume != "d-of-"+driverName {
		t.Errorf("the driver that ended answered %q, %v", got.volume, got.err)
	}
	if n := p.begun.Load(); n != 1 {
		t.Errorf("the driver that ended was asked %d times, want 1", n)
	}
}

func TestWritesAreFencedByTheLease(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "csi.sock")
	p := &plugin{name: "a.b.c"}
	defer serve(t, socket, p)()
	var not error
	c, err := Connect(t.Context(), socket, "", 5*time.Second, csimetrics.NewCSIMetricsManagerForSidecar(""), func() error { return not })
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for _, why := range []error{nil, errors.New("the lease is lost")} {
		not = why
		before := p.begun.Load() + p.deleted.Load()
		_, createErr := c.CreateVolume(t.Context(), &csi.CreateVolumeRequest{})
		_, deleteErr := c.DeleteVolume(t.Context(), &csi.DeleteVolumeRequest{})
		want := int32(2)
		if why != nil {
			want = 0
		}
		if n := p.begun.Load() + p.deleted.Load() - before; n != want {
			t.Errorf("%v: the driver was asked %d times, want %d", why, n, want)
		}
		if IsNotAsked(createErr) != (why != nil) || IsNotAsked(deleteErr) != (why != nil) {
			t.Errorf("%v: %v, %v", why, createErr, deleteErr)
		}
	}
}

// The Lease may be lost while a driver that has come back is verified.
func TestTheFenceIsCheckedAfterTheVerification(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "csi.sock")
	stop := serve(t, socket, &plugin{name: driverName})
	var lost atomic.Bool
	held := func() error {
		if lost.Load() {
			return errors.New("the lease is lost")
		}
		return nil
	}
	c, err := Connect(t.Context(), socket, "", 5*time.Second, csimetrics.NewCSIMetricsManagerForSidecar(""), held)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	stop()
	provisionertest.Eventually(t, "the driver was away", func() bool { return c.conn.GetState() != connectivity.Ready })
	p := &plugin{name: driverName, named: func() { lost.Store(true) }}
	serve(t, socket, p)
	provisionertest.Eventually(t, "the driver was back", func() bool { c.conn.Connect(); return c.conn.GetState() == connectivity.Ready })
	_, err = c.CreateVolume(t.Context(), &csi.CreateVolumeRequest{})
	if !IsNotAsked(err) || !strings.Contains(err.Error(), "the lease is lost") || p.begun.Load() != 0 {
		t.Errorf("%v, and the driver was asked %d times", err, p.begun.Load())
	}
}

// Between verification and call another driver may come to the socket: what it refuses says nothing of the volume.
func TestErrorsOfAnUnverifiedDriverDoNotCount(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "csi.sock")
	refusal := status.Error(codes.InvalidArgument, "no such type")
	stop := serve(t, socket, &plugin{name: driverName, refusal: refusal})
	var swap func()
	held := func() error { swap(); return nil }
	c, err := Connect(t.Context(), socket, "", 5*time.Second, csimetrics.NewCSIMetricsManagerForSidecar(""), held)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	swap = func() {}
	if _, err := c.CreateVolume(t.Context(), &csi.CreateVolumeRequest{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("the verified driver's error came as %v", err)
	}
	other := &plugin{name: "other.csi", refusal: refusal}
	swap = func() {
		stop()
		provisionertest.Eventually(t, "the driver was away", func() bool { return c.conn.GetState() != connectivity.Ready })
		serve(t, socket, other)
		provisionertest.Eventually(t, "another one was there", func() bool { c.conn.Connect(); return c.conn.GetState() == connectivity.Ready })
	}
	_, err = c.CreateVolume(t.Context(), &csi.CreateVolumeRequest{})
	if status.Code(err) != codes.Unavailable || IsNotAsked(err) || other.begun.Load() != 1 {
		t.Errorf("%v, and the other driver was asked %d times", err, other.begun.Load())
	}
}

// Only a driver that says that it heeds the condition of a deletion is taken to heed it.
func TestAManifestTellsOfDeletions(t *testing.T) {
	for name, test := range map[string]struct {
		manifest map[string]string
		want     bool
	}{
		"disk-driver's":       {map[string]string{unused.ManifestKey: "true"}, true},
		"none":                {nil, false},
		"that says otherwise": {map[string]string{unused.ManifestKey: "false"}, false},
		"of another driver":   {map[string]string{"url": "https://example.com"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "csi.sock")
			serve(t, socket, &plugin{name: driverName, manifest: test.manifest})
			c, err := connect(t.Context(), socket, driverName)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			if got := c.Can().DeleteOnlyUnused; got != test.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
