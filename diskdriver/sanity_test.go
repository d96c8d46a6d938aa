package diskdriver

import (
	"context"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"google.golang.org/grpc"

	"github.com/topodisk/topodisk/diskdriver/ecs"
	"github.com/topodisk/topodisk/ecssim"
)

// TestSanity runs the conformance suite of the CSI project over a real socket,
// with ECS simulated over HTTP. Ginkgo runs a suite once in a process, so it
// gets one of its own.
func TestSanity(t *testing.T) {
	const inner = "TOPODISK_SANITY"
	if os.Getenv(inner) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSanity$", "-test.v")
		cmd.Env = append(os.Environ(), inner+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		} else if testing.Verbose() {
			t.Logf("%s", out)
		}
		return
	}
	config := sanity.NewTestConfig()
	driver := sanityDriver(t)
	config.ControllerAddress = serve(t, driver)
	config.Address = serveNode(t, driver)
	config.TargetPath, config.StagingPath = filepath.Join(t.TempDir(), "target"), filepath.Join(t.TempDir(), "staging")
	config.TestVolumeParameters = map[string]string{"zoneId": "cn-hangzhou-a"}
	suite, reporter := ginkgo.GinkgoConfiguration()
	suite.SkipStrings = []string{"Node Service"} // served by another program
	gomega.RegisterFailHandler(ginkgo.Fail)
	tests := sanity.GinkgoTest(&config)
	ginkgo.RunSpecs(t, "CSI sanity", suite, reporter)
	tests.Finalize()
}

// sanityDriver returns a driver whose ECS is simulated over HTTP.
func sanityDriver(t *testing.T) *Driver {
	sim, err := ecssim.New(ecssim.Config{Region: "cn-hangzhou", Zones: []string{"cn-hangzhou-a"}, AccessKeys: map[string]string{"story": "secret"}})
	if err != nil {
		t.Fatal(err)
	}
	cloud := httptest.NewServer(sim)
	t.Cleanup(cloud.Close)
	client, err := ecs.NewClient(ecs.Config{
		Region: "cn-hangzhou", Endpoint: cloud.URL, ClusterID: cluster,
		Credentials: ecs.Static(ecs.Keys{AccessKeyID: "story", AccessKeySecret: "secret"}),
	})
	if err != nil {
		t.Fatal(err)
	}
	driver, err := New(Config{Version: "sanity", Region: "cn-hangzhou", ClusterID: cluster}, client)
	if err != nil {
		t.Fatal(err)
	}
	return driver
}

// otherNode is a Node service where nothing is published. The suite calls it
// when it cleans up after a test of the controller.
type otherNode struct{ csi.UnimplementedNodeServer }

func (otherNode) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{}, nil
}

func (otherNode) NodeUnpublishVolume(context.Context, *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// serveNode serves the driver's identity beside otherNode, and returns its
// address.
func serveNode(t *testing.T, driver *Driver) string {
	endpoint := "unix://" + filepath.Join(shortDir(t), "node.sock")
	listener, err := Listen(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(driver.chain))
	csi.RegisterIdentityServer(server, driver.identity)
	csi.RegisterNodeServer(server, otherNode{})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return endpoint
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

// serve runs a driver on a socket until the test ends, and returns its address.
func serve(t *testing.T, driver *Driver) string {
	endpoint := "unix://" + filepath.Join(shortDir(t), "csi.sock")
	listener, err := Listen(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- driver.Run(ctx, listener, time.Second) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return endpoint
}
