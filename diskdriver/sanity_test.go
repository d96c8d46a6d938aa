package diskdriver

import (
	"context"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/test/drivertest"
	"github.com/topodisk/topodisk/topology"
)

// The variables by which the process of the suite learns its directory, and how
// ECS is otherwise than usual.
const (
	sanityDir = "TOPODISK_SANITY"
	sanityECS = "TOPODISK_SANITY_ECS"
)

// TestSanity runs the conformance suite of the CSI project over gRPC, with ECS
// simulated. With -long it runs it again for every anomaly of ECS and the other
// side of every doubt, with calls that are throttled and with replies that are
// lost.
func TestSanity(t *testing.T) {
	if os.Getenv(sanityDir) != "" {
		signal.Notify(make(chan os.Signal, 1), os.Interrupt) // starts the runtime's watch of signals outside the bubble
		synctest.Test(t, runSanity)
		return
	}
	inOwnProcess(t, "")
	t.Run(realTimes.name, func(t *testing.T) { inOwnProcess(t, realTimes.name) })
	if !*long {
		return
	}
	for _, o := range slices.Concat(everyOtherwise(), troubles) {
		if o.name == "snapshot-none-unattached" {
			continue // the suite attaches nothing before it makes a snapshot
		}
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			inOwnProcess(t, o.name)
		})
	}
}

// inOwnProcess runs the suite: Ginkgo does that once in a process.
func inOwnProcess(t *testing.T, otherwise string) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSanity$", "-test.v")
	cmd.Env = append(os.Environ(), sanityDir+"="+t.TempDir(), sanityECS+"="+otherwise) // it ends without a clean-up
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	} else if testing.Verbose() {
		t.Logf("%s", out)
	}
}

// realTimes is an ECS that takes the times that clients have seen.
var realTimes = otherwise{name: "real-times", set: func(c *ecssim.Config) {
	var err error
	if c.Latency, err = ecssim.Profile("real"); err != nil {
		panic(err) // it is one of ecssim.Profiles
	}
}}

// troubles are what makes ECS refuse or lose a part of all calls.
var troubles = []otherwise{
	{name: "throttled", faults: []ecssim.Fault{{Do: ecssim.FaultThrottle, Percent: 5}}},
	{name: "lost-replies", faults: []ecssim.Fault{{Do: ecssim.FaultLostReply, Percent: 10}}},
}

// runSanity runs the suite in a bubble, where it takes no time to wait for ECS.
func runSanity(t *testing.T) {
	config := sanity.NewTestConfig()
	driver := sanityDriver(t, os.Getenv(sanityECS))
	config.ControllerAddress, config.ControllerDialOptions = pipe("controller", serve(t, driver))
	config.Address, config.DialOptions = pipe("node", serveNode(t, driver))
	dir := os.Getenv(sanityDir)
	config.TargetPath, config.StagingPath = filepath.Join(dir, "target"), filepath.Join(dir, "staging")
	config.TestVolumeParameters = map[string]string{"zoneId": "cn-hangzhou-a", "type": "cloud_essd"}
	config.TestVolumeMutableParameters = map[string]string{
		"type": "cloud_auto", "provisionedIops": "1000", "burstingEnabled": "true", "diskTags/tier": "fast", "-diskTags/tear": "",
	}
	config.TestVolumeSize = 20 << 30
	config.TestNodeVolumeAttachLimit = true
	config.IdempotentCount = 5
	config.ControllerDialOptions = append(config.ControllerDialOptions, grpc.WithChainUnaryInterceptor(drivertest.Marshalled))
	if os.Getenv(sanityECS) != "" {
		config.ControllerDialOptions = append(config.ControllerDialOptions, grpc.WithChainUnaryInterceptor(repeated))
	}
	suite, reporter := ginkgo.GinkgoConfiguration()
	suite.SkipStrings = []string{"Node Service"} // served by another program
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.ReportAfterSuite("everything else is tested", func(report ginkgo.Report) {
		for _, spec := range report.SpecReports {
			if spec.State.Is(types.SpecStateSkipped) && !strings.Contains(spec.FullText(), "Node Service") {
				ginkgo.Fail("skipped: " + spec.FullText())
			}
		}
	})
	tests := sanity.GinkgoTest(&config)
	passed := ginkgo.RunSpecs(t, "CSI sanity", suite, reporter)
	tests.Finalize()
	// Ginkgo leaves a goroutine behind, which a bubble doesn't forgive. The
	// process is the suite's own.
	if passed {
		os.Exit(0)
	}
	os.Exit(1)
}

// pipe returns an address and how to dial it: a listener in memory.
func pipe(name string, listener *bufconn.Listener) (string, []grpc.DialOption) {
	return "passthrough:///" + name, []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
	}
}

// repeated repeats a call while its outcome is open, as the sidecars do. Those
// don't repeat a list that begins at a bad place.
func repeated(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	for {
		err := invoker(ctx, method, req, reply, cc, opts...)
		code := status.Code(err)
		if code != codes.Unavailable && (code != codes.Aborted || targetOf(req) == (target{})) {
			return err
		}
		time.Sleep(time.Second)
	}
}

// sanityDriver returns a driver whose ECS is simulated, with the times that
// ecs-simulator takes by default, but for how it is otherwise.
func sanityDriver(t *testing.T, otherwise string) *Driver {
	latency, err := ecssim.Profile("fast")
	if err != nil {
		t.Fatal(err)
	}
	ecsConfig := ecssim.Config{
		Region: "cn-hangzhou", Zones: []string{"cn-hangzhou-a"}, AccessKeys: drivertest.Keys,
		Instances: []ecssim.Instance{{ID: sanityNode, Zone: "cn-hangzhou-a", Type: "ecs.g6.large"}},
		Latency:   latency,
	}
	var faults []ecssim.Fault
	for _, o := range append(slices.Concat(everyOtherwise(), troubles), realTimes) {
		if o.name == otherwise {
			o.apply(&ecsConfig)
			faults = o.faults
		}
	}
	sim, err := ecssim.New(ecsConfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := drivertest.Client(sim, cluster)
	if err != nil {
		t.Fatal(err)
	}
	underPolicy(t, sim, cluster)
	driver, err := New(Config{Version: "sanity", Region: "cn-hangzhou", ClusterID: cluster}, client)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults {
		if err := sim.AddFault(f); err != nil {
			t.Fatal(err)
		}
	}
	return driver
}

// sanityNode is the instance that the suite publishes to, which takes so many
// data disks.
const (
	sanityNode  = "i-sanity"
	sanityDisks = 16
)

// otherNode is a Node service where nothing is published. The suite asks it
// which node it is, and calls it when it cleans up after a test of the controller.
type otherNode struct{ csi.UnimplementedNodeServer }

func (otherNode) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{
		NodeId: sanityNode, MaxVolumesPerNode: sanityDisks,
		// The suite takes a snapshot for usable on its node only if it is told
		// of it in the same words.
		AccessibleTopology: &csi.Topology{Segments: map[string]string{topology.RegionKey: "cn-hangzhou"}},
	}, nil
}

func (otherNode) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{}, nil
}

func (otherNode) NodeUnpublishVolume(context.Context, *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// serveNode serves the driver's identity beside otherNode.
func serveNode(t *testing.T, driver *Driver) *bufconn.Listener {
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(driver.interceptors()...))
	csi.RegisterIdentityServer(server, driver.identity)
	csi.RegisterNodeServer(server, otherNode{})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener
}

// serve runs a driver until the test ends.
func serve(t *testing.T, driver *Driver) *bufconn.Listener {
	listener := bufconn.Listen(1 << 20)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- driver.Run(ctx, listener, time.Second) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return listener
}
