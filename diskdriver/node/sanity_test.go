package node_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/topodisk/topodisk/diskdriver"
	"github.com/topodisk/topodisk/diskdriver/disk"
	"github.com/topodisk/topodisk/diskdriver/node"
	"github.com/topodisk/topodisk/ecssim"
	"github.com/topodisk/topodisk/ecssim/bodies"
	"github.com/topodisk/topodisk/test/drivertest"
	"github.com/topodisk/topodisk/test/need"
	"github.com/topodisk/topodisk/topology"
)

const sanityNode = "i-sanity"

// sanityFacts is a node that takes 16 volumes.
type sanityFacts struct{}

func (sanityFacts) Node(context.Context, []string) (disk.Node, error) {
	// The suite takes a snapshot for usable on its node only if it is told of
	// it in the same words.
	return disk.Node{ID: sanityNode, Segments: map[string]string{topology.RegionKey: "cn-hangzhou"}, MaxVolumes: 16}, nil
}

// TestSanity runs the whole conformance suite of the CSI project, controller and
// node, with ECS simulated and its disks' bodies on loop devices. No spec is
// skipped. It takes three minutes,
// nearly all of which it waits for ECS.
func TestSanity(t *testing.T) {
	if !*node.Long {
		t.Skip("it waits for ECS for three minutes; `make test-long` runs it")
	}
	need.Has(t, need.Mounts, need.LoopDevices, need.FileSystem("ext4"), need.FileSystem("xfs"))
	need.Has(t, need.Programs("losetup", "blockdev", "partx", "blkid", "e2fsck", "resize2fs", "xfs_growfs", "sfdisk")...)
	dir := t.TempDir()
	kubelet, dev := filepath.Join(dir, "kubelet"), filepath.Join(dir, "dev")
	for _, d := range []string{kubelet, dev} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const loopMajor = 7
	for minor := range uint32(64) {
		if err := unix.Mknod(filepath.Join(dev, fmt.Sprintf("loop%d", minor)), unix.S_IFBLK|0o600, int(unix.Mkdev(loopMajor, minor))); err != nil {
			t.Fatal(err)
		}
	}
	driver := sanityDriver(t, kubelet, dev, filepath.Join(dir, "bodies"))
	endpoint := "unix://" + filepath.Join(dir, "csi.sock")
	listener, err := diskdriver.Listen(endpoint)
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
	runSuite(t, endpoint, kubelet)
}

// sanityDriver returns a driver of controller and node.
func sanityDriver(t *testing.T, kubelet, dev, bodyDir string) *diskdriver.Driver {
	latency, err := ecssim.Profile("fast") // as ecs-simulator has it by default
	if err != nil {
		t.Fatal(err)
	}
	var keeper *bodies.Keeper
	sim, err := ecssim.New(ecssim.Config{
		Region: "cn-hangzhou", Zones: []string{"cn-hangzhou-a"}, AccessKeys: drivertest.Keys,
		Instances: []ecssim.Instance{{ID: sanityNode, Zone: "cn-hangzhou-a", Type: "ecs.g6.large"}},
		Latency:   latency,
		BeforeReply: func() {
			if err := keeper.Update(); err != nil {
				t.Error(err)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if keeper, err = bodies.New(sim, bodyDir, map[string]string{sanityNode: filepath.Join(dev, "disk/by-id")}, func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := keeper.Close(); err != nil {
			t.Error(err)
		}
	})
	client, err := drivertest.Client(sim, "sanity")
	if err != nil {
		t.Fatal(err)
	}
	driver, err := diskdriver.New(diskdriver.Config{Version: "sanity", Region: "cn-hangzhou", ClusterID: "sanity"}, client)
	if err != nil {
		t.Fatal(err)
	}
	server, err := node.New(node.Config{Driver: diskdriver.DefaultName, KubeletDir: kubelet, Dev: dev, Facts: sanityFacts{}, BlankCheck: node.BlankCheck{Limit: node.DefaultBlankCheckLimit}})
	if err != nil {
		t.Fatal(err)
	}
	driver.WithNode(server)
	return driver
}

// runSuite runs every spec.
func runSuite(t *testing.T, endpoint, kubelet string) {
	config := sanity.NewTestConfig()
	config.Address = endpoint
	config.TargetPath, config.StagingPath = filepath.Join(kubelet, "target"), filepath.Join(kubelet, "staging")
	config.DialOptions = append(config.DialOptions, grpc.WithChainUnaryInterceptor(drivertest.Marshalled))
	// xfs, for not every kernel lets a mounted ext4 grow.
	config.TestVolumeParameters = map[string]string{"zoneId": "cn-hangzhou-a", "type": "cloud_essd", "fsType": "xfs"}
	config.TestVolumeMutableParameters = map[string]string{"type": "cloud_auto", "provisionedIops": "1000", "diskTags/tier": "fast"}
	config.TestVolumeSize = 20 << 30
	config.TestNodeVolumeAttachLimit = true
	config.IdempotentCount = 5
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.ReportAfterSuite("nothing is skipped", func(report ginkgo.Report) {
		for _, spec := range report.SpecReports {
			if spec.State.Is(types.SpecStateSkipped) {
				ginkgo.Fail("skipped: " + spec.FullText())
			}
		}
	})
	tests := sanity.GinkgoTest(&config)
	if !ginkgo.RunSpecs(t, "CSI sanity with nodes") {
		t.Error("the suite has failed")
	}
	tests.Finalize()
}
