//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/ecs"
	"github.com/topodisk/topodisk/diskdriver/ecs/credentials"
	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/process"
	"github.com/topodisk/topodisk/test/lab/programs"
	"github.com/topodisk/topodisk/test/lab/simulator"
	"github.com/topodisk/topodisk/topology"
)

// What follows plays the driver of kubernetes-sigs/alibaba-cloud-csi-driver and its provisioner. The provisioner is
// Kubernetes' csi-provisioner, built from its module, with the flags that the other driver's installation gives to its own
// build of it. The driver is a stand-in that makes disks as that driver is known to: one CreateDisk a volume, with its
// client token and its tags.

// operatorKeys sign as somebody whom topodisk's policy doesn't limit.
type operatorKeys struct{}

func (operatorKeys) Get(context.Context) (credentials.Keys, error) {
	return credentials.Keys{AccessKeyID: simulator.OperatorID, AccessKeySecret: simulator.OperatorSecret}, nil
}

// incumbentMark is the tag by which disks of the other driver are known.
const incumbentMark = "alibabacloud-csi-plugin"

// incumbent is the other driver, which knows the cluster's ID.
type incumbent struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer

	scene  *scene
	client *ecs.Client
	socket string
	server *grpc.Server
	runs   int
	proc   *process.Process

	mu    sync.Mutex
	begun []time.Time // when it asked ECS for a disk
}

// newIncumbent returns one that doesn't run.
func (s *scene) newIncumbent() *incumbent {
	s.Helper()
	client, err := ecs.NewClient(ecs.Config{Region: s.Nodes[0].Region, Endpoint: s.Topodisk.Gate.URL(), Credentials: operatorKeys{}, ClusterID: simulator.ClusterID})
	s.Must(err)
	return &incumbent{scene: s, client: client, socket: filepath.Join(s.Dir, "incumbent-"+s.Namespace+".sock")}
}

// upstream is the directory of Kubernetes' csi-provisioner, built at the first need.
var upstream = sync.OnceValues(func() (string, error) {
	root, err := programs.FindRoot()
	if err != nil {
		return "", err
	}
	return programs.BuildUpstream(context.Background(), root, os.Stderr)
})

// start runs driver and provisioner, who waits for its turn to lead.
func (in *incumbent) start(args ...string) {
	s := in.scene
	s.Helper()
	dir, err := upstream()
	s.Must(err)
	listener, err := net.Listen("unix", in.socket)
	s.Must(err)
	in.server = grpc.NewServer()
	csi.RegisterIdentityServer(in.server, in)
	csi.RegisterControllerServer(in.server, in)
	server := in.server
	go func() { _ = server.Serve(listener) }() // it ends by stop
	in.runs++
	flags := append([]string{
		"--csi-address=" + in.socket, "--kubeconfig=" + s.Kubeconfig, "--volume-name-prefix=disk", "--strict-topology=true", "--timeout=150s",
		"--leader-election=true", "--leader-election-namespace=" + leaseNamespace, "--retry-interval-start=500ms", "--extra-create-metadata=true",
		"--default-fstype=ext4", "--kube-api-qps=1000", "--kube-api-burst=2000", "--v=5",
	}, quickElection...)
	in.proc, err = s.StartProgram(fmt.Sprintf("csi-provisioner-%s-%d", s.Namespace, in.runs), filepath.Join(dir, "csi-provisioner"), append(flags, args...)...)
	s.Must(err)
}

// stop ends both, in the middle of whatever they do: csi-provisioner ends at once with SIGTERM. It may be called twice.
func (in *incumbent) stop() {
	if in.proc == nil {
		return
	}
	in.scene.StopProgram(in.proc, false)
	in.server.Stop()
	in.proc = nil
}

// asked returns when it asked ECS for disks.
func (in *incumbent) asked() []time.Time {
	in.mu.Lock()
	defer in.mu.Unlock()
	return append([]time.Time(nil), in.begun...)
}

// create makes a disk under the token and with the tags of the other driver's CreateVolume.
func (in *incumbent) create(ctx context.Context, name, namespace, claim string, attempt disk.Attempt) (disk.Disk, error) {
	in.mu.Lock()
	in.begun = append(in.begun, time.Now())
	in.mu.Unlock()
	return in.client.Create(ctx, disk.Spec{Name: name, Tags: disk.Tags{
		"k8s.aliyun.com": "true", disk.ClusterTag: simulator.ClusterID, disk.CreatedByTag: incumbentMark, disk.VolumeNameTag: name,
		disk.ClaimNameTag: claim, disk.ClaimNamespaceTag: namespace, "kubernetes.io/created-for/pv/name": name,
	}}, attempt, disk.Token("n:"+name))
}

// CreateVolume takes the first zone of the requirement. A token that was used with other parameters ends in AlreadyExists:
// the other driver finds the disk by its name, and doesn't take it, for it misreads its tags.
func (in *incumbent) CreateVolume(ctx context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	zone := zoneOf(req.GetAccessibilityRequirements())
	parameters := req.GetParameters()
	d, err := in.create(ctx, req.GetName(), parameters["csi.storage.k8s.io/pvc/namespace"], parameters["csi.storage.k8s.io/pvc/name"], disk.Attempt{
		Zone: disk.Zone(zone), Category: disk.Category(parameters["type"]), Size: disk.GiB(req.GetCapacityRange().GetRequiredBytes() >> 30),
	})
	switch kind := disk.KindOf(err); {
	case ctx.Err() != nil:
		return nil, status.FromContextError(ctx.Err()).Err()
	case err != nil && kind == disk.Mismatch:
		return nil, status.Error(codes.AlreadyExists, err.Error())
	case err != nil:
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId: string(d.ID), CapacityBytes: d.Size.Bytes(), VolumeContext: map[string]string{"type": string(d.Category)},
		AccessibleTopology: []*csi.Topology{{Segments: map[string]string{topology.ZoneKey: zone}}},
	}}, nil
}

// zoneOf is the first zone of a requirement, the preferred ones first.
func zoneOf(r *csi.TopologyRequirement) string {
	for _, term := range append(r.GetPreferred(), r.GetRequisite()...) {
		if zone := term.GetSegments()[topology.ZoneKey]; zone != "" {
			return zone
		}
	}
	return ""
}

func (in *incumbent) DeleteVolume(ctx context.Context, req *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	err := in.client.Delete(ctx, disk.ID(req.GetVolumeId()))
	if err != nil && !errors.Is(err, context.Canceled) {
		err = status.Error(codes.Internal, err.Error())
	}
	return &csi.DeleteVolumeResponse{}, err
}

func (in *incumbent) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

func (in *incumbent) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: lab.DriverName, VendorVersion: "stand-in"}, nil
}

func (in *incumbent) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	service := func(t csi.PluginCapability_Service_Type) *csi.PluginCapability {
		return &csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: t}}}
	}
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{
		service(csi.PluginCapability_Service_CONTROLLER_SERVICE), service(csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS),
	}}, nil
}

func (in *incumbent) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	rpc := func(t csi.ControllerServiceCapability_RPC_Type) *csi.ControllerServiceCapability {
		return &csi.ControllerServiceCapability{Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: t}}}
	}
	return &csi.ControllerGetCapabilitiesResponse{Capabilities: []*csi.ControllerServiceCapability{
		rpc(csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME), rpc(csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME),
	}}, nil
}

// saved counts the volumes of the scene that have a name like that.
func (s *scene) saved(prefix string) (n int) {
	s.Helper()
	volumes, err := s.volumes(s.Context())
	s.Must(err)
	for _, pv := range volumes {
		if strings.HasPrefix(pv.Name, prefix) {
			n++
		}
	}
	return n
}
