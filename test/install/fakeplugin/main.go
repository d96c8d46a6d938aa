// Command fakeplugin stands for the programs of kubernetes-sigs/alibaba-cloud-csi-driver where topodisk's installation is
// tested beside them: a plugin that serves the drivers of disk, NAS and OSS on a socket each, and what registers one of them
// with the kubelet. Volumes of NAS and OSS are directories of the node; of disks it serves none.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "fakeplugin:", err)
		os.Exit(1)
	}
}

// run serves what the arguments say until ctx ends.
func run(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet("fakeplugin", pflag.ContinueOnError)
	endpoint := flags.String("endpoint", "", "the socket of every driver, with driverplugin.csi.alibabacloud.com-replace for its name")
	drivers := flags.StringSlice("driver", nil, "the drivers to serve: disk, nas, oss")
	flags.Bool("run-controller-service", false, "is taken as the plugin takes it; both services are served")
	flags.Bool("run-node-service", false, "is taken as the plugin takes it; both services are served")
	flags.String("csi-address", "", "is taken as the registrar takes it")
	path := flags.String("kubelet-registration-path", "", "register the driver of this socket with the kubelet")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *path != "" {
		return register(ctx, *path)
	}
	var all sync.WaitGroup
	errs := make(chan error, len(*drivers))
	for _, short := range *drivers {
		name := short + "plugin.csi.alibabacloud.com"
		socket := "/" + strings.TrimPrefix(strings.ReplaceAll(*endpoint, "driverplugin.csi.alibabacloud.com-replace", name), "unix://")
		all.Go(func() { errs <- serve(ctx, socket, &plugin{name: name}) })
	}
	all.Wait()
	for range *drivers {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

// register serves the registration of a driver in /registration, as node-driver-registrar does: it puts its socket in the
// place of any other of the name, and takes it away in the end.
func register(ctx context.Context, endpoint string) error {
	name := filepath.Base(filepath.Dir(endpoint))
	socket := filepath.Join("/registration", name+"-reg.sock")
	return listen(ctx, socket, func(server *grpc.Server) {
		registration.RegisterRegistrationServer(server, &registrar{info: &registration.PluginInfo{
			Type: registration.CSIPlugin, Name: name, Endpoint: endpoint, SupportedVersions: []string{"1.0.0"}}})
	})
}

type registrar struct {
	registration.UnimplementedRegistrationServer
	info *registration.PluginInfo
}

func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return r.info, nil
}

func (r *registrar) NotifyRegistrationStatus(context.Context, *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	return &registration.RegistrationStatusResponse{}, nil
}

func serve(ctx context.Context, socket string, p *plugin) error {
	return listen(ctx, socket, func(server *grpc.Server) {
		csi.RegisterIdentityServer(server, p)
		csi.RegisterControllerServer(server, p)
		csi.RegisterNodeServer(server, p)
	})
}

// listen serves on a socket until ctx ends, and removes it.
func listen(ctx context.Context, socket string, add func(*grpc.Server)) error {
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		return err
	}
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	add(server)
	context.AfterFunc(ctx, server.Stop)
	return server.Serve(listener)
}

// plugin serves one driver.
type plugin struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer
	name string
}

func (p *plugin) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: p.name, VendorVersion: "1"}, nil
}

func (p *plugin) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

func (p *plugin) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	service := &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE}
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{{Type: &csi.PluginCapability_Service_{Service: service}}}}, nil
}

func (p *plugin) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	can := []csi.ControllerServiceCapability_RPC_Type{csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME}
	answer := &csi.ControllerGetCapabilitiesResponse{}
	for _, c := range can {
		rpc := &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: c}}
		answer.Capabilities = append(answer.Capabilities, &csi.ControllerServiceCapability{Type: rpc})
	}
	return answer, nil
}

// ControllerPublishVolume attaches nothing: a node has every share.
func (p *plugin) ControllerPublishVolume(context.Context, *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	if p.servesDisks() {
		return nil, status.Error(codes.Unavailable, "this plugin attaches no disks")
	}
	return &csi.ControllerPublishVolumeResponse{}, nil
}

func (p *plugin) ControllerUnpublishVolume(context.Context, *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	if p.servesDisks() {
		return nil, status.Error(codes.Unavailable, "this plugin detaches no disks")
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

// CreateVolume makes nothing: the volume is there once a node publishes it.
func (p *plugin) CreateVolume(_ context.Context, in *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if p.servesDisks() {
		return nil, status.Error(codes.Unavailable, "this plugin makes no disks")
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: in.GetName(), CapacityBytes: in.GetCapacityRange().GetRequiredBytes()}}, nil
}

func (p *plugin) DeleteVolume(context.Context, *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if p.servesDisks() {
		return nil, status.Error(codes.Unavailable, "this plugin deletes no disks")
	}
	return &csi.DeleteVolumeResponse{}, nil
}

func (p *plugin) servesDisks() bool { return strings.HasPrefix(p.name, "disk") }

// NodeGetInfo returns the instance of the node, which the environment names by nodes.
func (p *plugin) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	for pair := range strings.SplitSeq(os.Getenv("INSTANCES"), ",") {
		if node, instance, _ := strings.Cut(pair, "="); node == os.Getenv("KUBE_NODE_NAME") {
			return &csi.NodeGetInfoResponse{NodeId: instance}, nil
		}
	}
	return nil, status.Errorf(codes.FailedPrecondition, "INSTANCES has no node %s", os.Getenv("KUBE_NODE_NAME"))
}

func (p *plugin) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{}, nil
}

func (p *plugin) NodePublishVolume(_ context.Context, in *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if p.servesDisks() {
		return nil, status.Error(codes.Unavailable, "this plugin mounts no disks")
	}
	share := filepath.Join("/var/lib/kubelet/csi-plugins", p.name, "shares", in.GetVolumeId())
	for _, dir := range []string{share, in.GetTargetPath()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	if err := unix.Mount(share, in.GetTargetPath(), "", unix.MS_BIND, ""); err != nil {
		return nil, err
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

func (p *plugin) NodeUnpublishVolume(_ context.Context, in *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if p.servesDisks() {
		return nil, status.Error(codes.Unavailable, "this plugin unmounts no disks")
	}
	if err := unix.Unmount(in.GetTargetPath(), 0); err != nil && err != unix.EINVAL && err != unix.ENOENT {
		return nil, err
	}
	if err := os.Remove(in.GetTargetPath()); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}
