package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/topology"
)

// benchDriver is the name of the driver that answers at once.
const benchDriver = "bench.csi.topodisk.io"

// instant is a CSI driver that answers at once: what is measured is the provisioner.
type instant struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
}

func (instant) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

func (instant) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: benchDriver, VendorVersion: "1"}, nil
}

func (instant) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	response := &csi.GetPluginCapabilitiesResponse{}
	for _, t := range []csi.PluginCapability_Service_Type{csi.PluginCapability_Service_CONTROLLER_SERVICE, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS} {
		response.Capabilities = append(response.Capabilities, &csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: t}}})
	}
	return response, nil
}

func (instant) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	rpc := &csi.ControllerServiceCapability_RPC{Type: csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME}
	return &csi.ControllerGetCapabilitiesResponse{Capabilities: []*csi.ControllerServiceCapability{{Type: &csi.ControllerServiceCapability_Rpc{Rpc: rpc}}}}, nil
}

// CreateVolume makes nothing. The volume's ID ends in the claim's UID, as the names of both provisioners' volumes do.
func (instant) CreateVolume(_ context.Context, in *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	volume := &csi.Volume{VolumeId: "vol-" + strings.TrimPrefix(in.GetName(), "pvc-"), CapacityBytes: in.GetCapacityRange().GetRequiredBytes()}
	if preferred := in.GetAccessibilityRequirements().GetPreferred(); len(preferred) > 0 {
		volume.AccessibleTopology = preferred[:1]
	}
	return &csi.CreateVolumeResponse{Volume: volume}, nil
}

func (instant) DeleteVolume(context.Context, *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	return &csi.DeleteVolumeResponse{}, nil
}

func serveInstant(socket string) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, instant{})
	csi.RegisterControllerServer(server, instant{})
	go server.Serve(listener) //nolint:errcheck // it ends with this process
	return nil
}

// provisioner is one of the two provisioners.
type provisioner struct {
	name string // of the program, which is how its requests begin to tell who sends them
	path string
}

// environment is the control plane on which both provisioners run, one at a time.
type environment struct {
	*lab.Lab
	socket         string
	ours, upstream provisioner
	decision       string // the program that times upstream's requirement
	audit          *lab.Audit
	classes        int
	runs           int
}

// both returns the provisioners, ours first.
func (e *environment) both() []provisioner { return []provisioner{e.ours, e.upstream} }

// start runs a provisioner with further flags.
func (e *environment) start(p provisioner, args ...string) (*lab.Process, error) {
	return e.run(p.name, p.path, e.flags(args))
}

// startOn is start on a host of that name: csi-provisioner's replicas take themselves for one if they share it.
func (e *environment) startOn(host string, p provisioner, args ...string) (*lab.Process, error) {
	const script = `hostname "$0" && exec "$@"`
	return e.run(p.name, "unshare", append([]string{"--map-root-user", "--uts", "sh", "-c", script, host, p.path}, e.flags(args)...))
}

func (e *environment) flags(more []string) []string {
	return append([]string{"--csi-address=" + e.socket, "--kubeconfig=" + e.Kubeconfig, "--leader-election-namespace=kube-system"}, more...)
}

func (e *environment) run(name, path string, args []string) (*lab.Process, error) {
	e.runs++
	return e.StartProgram(fmt.Sprintf("%s-%d", name, e.runs), path, args...)
}

// unlimited are flags under which the client's own limit plays no part.
var unlimited = []string{"--kube-api-qps=100000", "--kube-api-burst=100000"}

func limited(qps int) []string {
	return []string{fmt.Sprintf("--kube-api-qps=%d", qps), fmt.Sprintf("--kube-api-burst=%d", 2*qps)}
}

// memoryOf is a program's resident memory in bytes: VmRSS as it is, or VmHWM at its peak.
func memoryOf(p *lab.Process, name string) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid()))
	if err != nil {
		return 0, err
	}
	return sizeIn(string(text), name)
}

// zoneLabel is the one topology key of the nodes.
const zoneLabel = topology.WellKnownZoneKey

func socketIn(dir string) string { return filepath.Join(dir, "instant.sock") }

// sleepFor waits for what has no sign of its end.
func sleepFor(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
