package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Names of the driver that answers at once: where provisioners are measured, and where Pods are.
const (
	benchDriver = "bench.csi.topodisk.io"
	podsDriver  = "instant.csi.topodisk.io"
)

// Names of the drivers that take ECS's time, one for each provisioner.
const (
	ecsDriver         = "ecs.bench.csi.topodisk.io"
	upstreamECSDriver = "ecs.upstream.bench.csi.topodisk.io"
)

// ecsTime is how long ECS takes to create a disk (ecssim's profile real).
const ecsTime = 500 * time.Millisecond

// instant is a CSI driver that answers at once: what is measured is what calls it.
type instant struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer
	name       string
	attaches   bool
	node, zone string        // that it is the node plugin of
	dir        string        // of its volumes, on that node
	paces      string        // directory of paces, by claim; empty for none
	creates    time.Duration // how long it takes to create a volume that has no pace
}

// pace is how long the driver waits for a volume instead of answering at once: for its creation, from the beginning of that until it
// can be attached, for its attachment, and on the node for its device.
type pace struct{ Create, Ready, Attach, Device time.Duration }

// The pace of a volume in its context, and in that of its publication.
const (
	readyKey  = "ready" // the time
	attachKey = "attach"
	deviceKey = "device"
	seenKey   = "seen" // the time
)

// writePace has the driver wait for the volume of a claim.
func writePace(dir, claim string, p pace) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, claim), text, 0o644))
}

// paceOf reads what writePace has written; the zero pace if it has written none.
func (d instant) paceOf(claim string) (p pace, err error) {
	if d.paces == "" || claim == "" {
		return p, nil
	}
	text, err := os.ReadFile(filepath.Join(d.paces, filepath.Base(claim)))
	if errors.Is(err, os.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return p, err
	}
	return p, json.Unmarshal(text, &p)
}

// instantVariable is the environment of a process that is a part of the driver: its instantSettings, in JSON.
const instantVariable = "TOPODISK_BENCH_INSTANT"

// instantSettings say which part of the driver a process is.
type instantSettings struct{ Socket, Node, Zone, Paces string }

// playInstant serves the controller, or the plugin of a node, until the process ends.
func playInstant(settings []byte) error {
	var s instantSettings
	if err := json.Unmarshal(settings, &s); err != nil {
		return err
	}
	d := instant{name: podsDriver, attaches: true, node: s.Node, zone: s.Zone, paces: s.Paces, dir: filepath.Join(filepath.Dir(s.Socket), "volumes")}
	server, listener, err := d.listen(s.Socket)
	if err != nil {
		return err
	}
	return server.Serve(listener)
}

// listen returns a server of all that the driver is.
func (d instant) listen(socket string) (*grpc.Server, net.Listener, error) {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, nil, err
	}
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, d)
	csi.RegisterControllerServer(server, d)
	if d.node != "" {
		csi.RegisterNodeServer(server, d)
	}
	return server, listener, nil
}

// serveInstant serves the controller of a name in this process, which takes that time to create a volume.
func serveInstant(dir, name string, creates time.Duration) error {
	server, listener, err := instant{name: name, creates: creates}.listen(socketIn(dir, name))
	if err != nil {
		return err
	}
	go server.Serve(listener) //nolint:errcheck // it ends with this process
	return nil
}

func (instant) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

func (d instant) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.name, VendorVersion: "1"}, nil
}

func (instant) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	response := &csi.GetPluginCapabilitiesResponse{}
	for _, t := range []csi.PluginCapability_Service_Type{
		csi.PluginCapability_Service_CONTROLLER_SERVICE, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS,
	} {
		response.Capabilities = append(response.Capabilities,
			&csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: t}}})
	}
	return response, nil
}

func (d instant) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	can := []csi.ControllerServiceCapability_RPC_Type{csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME}
	if d.attaches {
		can = append(can, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME)
	}
	response := &csi.ControllerGetCapabilitiesResponse{}
	for _, t := range can {
		rpc := &csi.ControllerServiceCapability_RPC{Type: t}
		response.Capabilities = append(response.Capabilities, &csi.ControllerServiceCapability{Type: &csi.ControllerServiceCapability_Rpc{Rpc: rpc}})
	}
	return response, nil
}

// CreateVolume makes nothing. The volume's ID ends in the claim's UID, as the names of both provisioners' volumes do.
func (d instant) CreateVolume(ctx context.Context, in *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	volume := &csi.Volume{VolumeId: "vol-" + strings.TrimPrefix(in.GetName(), "pvc-"), CapacityBytes: in.GetCapacityRange().GetRequiredBytes()}
	p, err := d.paceOf(in.GetParameters()["csi.storage.k8s.io/pvc/name"])
	if err != nil {
		return nil, err
	}
	if p != (pace{}) {
		volume.VolumeContext = map[string]string{readyKey: time.Now().Add(p.Ready).Format(time.RFC3339Nano), attachKey: p.Attach.String(),
			deviceKey: p.Device.String()}
		if err := sleepFor(ctx, p.Create); err != nil {
			return nil, err
		}
	}
	if err := sleepFor(ctx, d.creates); err != nil {
		return nil, err
	}
	if preferred := in.GetAccessibilityRequirements().GetPreferred(); len(preferred) > 0 {
		volume.AccessibleTopology = preferred[:1]
	}
	return &csi.CreateVolumeResponse{Volume: volume}, nil
}

func (instant) DeleteVolume(context.Context, *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	return &csi.DeleteVolumeResponse{}, nil
}

func (instant) ControllerPublishVolume(ctx context.Context, in *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	response := &csi.ControllerPublishVolumeResponse{}
	if in.GetVolumeContext()[attachKey] == "" {
		return response, nil
	}
	attach, err := time.ParseDuration(in.GetVolumeContext()[attachKey])
	if err != nil {
		return nil, err
	}
	device, err := time.ParseDuration(in.GetVolumeContext()[deviceKey])
	if err != nil {
		return nil, err
	}
	ready, err := time.Parse(time.RFC3339Nano, in.GetVolumeContext()[readyKey])
	if err != nil {
		return nil, err
	}
	wait := max(time.Until(ready), 0) + attach
	response.PublishContext = map[string]string{seenKey: time.Now().Add(wait + device).Format(time.RFC3339Nano)}
	return response, sleepFor(ctx, wait)
}

func (instant) ControllerUnpublishVolume(context.Context, *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

func (d instant) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.node, AccessibleTopology: &csi.Topology{Segments: map[string]string{zoneLabel: d.zone}}}, nil
}

// NodeGetCapabilities has the kubelet stage volumes, as it does for a disk.
func (instant) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	rpc := &csi.NodeServiceCapability_RPC{Type: csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME}
	return &csi.NodeGetCapabilitiesResponse{Capabilities: []*csi.NodeServiceCapability{{Type: &csi.NodeServiceCapability_Rpc{Rpc: rpc}}}}, nil
}

func (instant) NodeStageVolume(ctx context.Context, in *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	if in.GetPublishContext()[seenKey] == "" {
		return &csi.NodeStageVolumeResponse{}, nil
	}
	seen, err := time.Parse(time.RFC3339Nano, in.GetPublishContext()[seenKey])
	if err != nil {
		return nil, err
	}
	return &csi.NodeStageVolumeResponse{}, sleepFor(ctx, time.Until(seen))
}

func (instant) NodeUnstageVolume(context.Context, *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	return &csi.NodeUnstageVolumeResponse{}, nil
}

// NodePublishVolume binds a directory of the node, which stands for the volume, to the target.
func (d instant) NodePublishVolume(_ context.Context, in *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	volume := filepath.Join(d.dir, filepath.Base(in.GetVolumeId()))
	if err := errors.Join(os.MkdirAll(volume, 0o755), os.MkdirAll(in.GetTargetPath(), 0o750)); err != nil {
		return nil, err
	}
	if err := unix.Mount(volume, in.GetTargetPath(), "", unix.MS_BIND, ""); err != nil {
		return nil, fmt.Errorf("bind %s to %s: %w", volume, in.GetTargetPath(), err)
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

func (instant) NodeUnpublishVolume(_ context.Context, in *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if err := unix.Unmount(in.GetTargetPath(), 0); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return nil, fmt.Errorf("unmount %s: %w", in.GetTargetPath(), err)
	}
	if err := os.Remove(in.GetTargetPath()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}
