//go:build foreign

package foreign

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/onsi/ginkgo/v2/types"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/topodisk/topodisk/test/lab"
	"github.com/topodisk/topodisk/test/lab/programs"
	"github.com/topodisk/topodisk/test/lab/sandbox"
	"github.com/topodisk/topodisk/test/need"
)

// atFault are the specs that fail for a reason of csi-sanity's own, with that reason. One that passes is a failure, too, so
// that it is taken out here.
var atFault = map[string]string{
	"CreateSnapshot [Controller Server] should succeed when creating a snapshot with accessibility requirements": "it wants each topology of a snapshot " +
		"to equal the node's, key by key and in what Go's protobuf keeps inside a message; a snapshot is for the whole region, so the driver names that alone",
}

// nodeSpecs is how the specs of the CSI Node service begin. They mount.
const nodeSpecs = "Node Service"

// TestSanity runs csi-sanity against disk-driver in mode all on ecs-simulator: what a node is not needed for as anybody, and
// the rest in a sandbox, where there are devices.
func TestSanity(t *testing.T) {
	t.Parallel()
	s := startDriver(t)
	t.Run("Controller", func(t *testing.T) { s.run(t, false) })
	t.Run("Node", func(t *testing.T) {
		need.Has(t, need.Program("ip"), need.Mounts, need.LoopDevices, need.FileSystem("ext4"))
		need.Has(t, need.Programs("losetup", "blockdev", "partx", "blkid", "e2fsck", "resize2fs", "sfdisk")...)
		s.run(t, true)
	})
}

// driver is a disk-driver that serves.
type driver struct {
	endpoint, kubelet string
}

// startDriver starts a control plane with a node, a simulator with its instance, and the driver for both.
func startDriver(t *testing.T) driver {
	dirs := programs.Default.BuiltNodes(root)
	dirs.Topodisk = filepath.Join(root, "bin")
	l, err := lab.Start(interrupted, lab.Options{Root: root, StateDir: filepath.Join(dir, "lab"), Bare: true, Programs: dirs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Stop(); err != nil {
			t.Error(err)
		}
	})
	node := lab.Node{Name: nodeName, Instance: instanceOf(0), Type: "ecs.g7.large", Region: region, Zone: zone}
	if err := l.AddBareNode(interrupted, node); err != nil {
		t.Fatal(err)
	}
	s := driver{endpoint: "unix://" + filepath.Join(dir, "csi.sock"), kubelet: filepath.Join(dir, "kubelet")}
	if err := os.MkdirAll(filepath.Join(s.kubelet, "plugins_registry"), 0o755); err != nil {
		t.Fatal(err)
	}
	c := startCloud(t, 1, bodies(t)...)
	cmd := command(t, shipped("disk-driver"), "--mode=all", "--endpoint="+s.endpoint, "--region="+region, "--cluster-id=foreign",
		"--ecs-endpoint=http://"+c.address, "--node-name="+nodeName, "--kubeconfig="+l.Kubeconfig,
		"--leader-election-namespace=kube-system", "--kubelet-dir="+s.kubelet)
	cmd.Env = append(os.Environ(), "ALIBABA_CLOUD_ACCESS_KEY_ID="+keyID, "ALIBABA_CLOUD_ACCESS_KEY_SECRET="+secret)
	start(t, cmd)
	s.await(t)
	return s
}

// bodies are the simulator's flags for disks that a node can mount, in a sandbox.
func bodies(t *testing.T) []string {
	if !sandbox.Inside() {
		return nil
	}
	links := filepath.Join(dir, "by-id")
	if err := (sandbox.Sandbox{Dir: dir}).MountLinks(links); err != nil {
		t.Fatal(err)
	}
	return []string{"--bodies=" + filepath.Join(dir, "bodies"), "--links=" + instanceOf(0) + "=" + links}
}

// await returns when the driver knows its node.
func (s driver) await(t *testing.T) {
	conn, err := grpc.NewClient(s.endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(interrupted, time.Minute)
	defer cancel()
	for {
		_, err := csi.NewNodeClient(conn).NodeGetInfo(ctx, &csi.NodeGetInfoRequest{})
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the driver does not know its node: %v; its log is in %s", err, dir)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// run runs the specs of the node or all others, and judges what comes of them.
func (s driver) run(t *testing.T, node bool) {
	some := "--ginkgo.skip=" + nodeSpecs
	if node {
		some = "--ginkgo.focus=" + nodeSpecs
	}
	report := filepath.Join(dir, strings.ReplaceAll(t.Name(), "/", "-")+".json")
	parameters, mutable := filepath.Join(dir, "parameters.yaml"), filepath.Join(dir, "mutable.yaml")
	for file, values := range map[string]map[string]string{parameters: {"zoneId": zone}, mutable: {"type": "cloud_auto", "provisionedIops": "1000"}} {
		text, err := json.Marshal(values) // which is YAML, too
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	suite := command(t, filepath.Join(built, "csi-sanity"), some, "--ginkgo.no-color", "--ginkgo.json-report="+report,
		"--csi.endpoint="+s.endpoint, "--csi.mountdir="+filepath.Join(s.kubelet, "target"), "--csi.stagingdir="+filepath.Join(s.kubelet, "staging"),
		"--csi.testvolumeparameters="+parameters, "--csi.testvolumemutableparameters="+mutable, "--csi.testnodevolumeattachlimit")
	said, err := suite.Output()
	if err := os.WriteFile(strings.TrimSuffix(report, ".json")+".log", said, 0o600); err != nil {
		t.Fatal(err)
	}
	if interrupted.Err() != nil {
		t.Fatal("interrupted")
	}
	specs := slices.DeleteFunc(readReport(t, report), func(s types.SpecReport) bool { return strings.HasPrefix(s.FullText(), nodeSpecs) != node })
	if len(specs) == 0 {
		t.Fatalf("csi-sanity has run nothing: %v\n%s", err, said)
	}
	judge(t, specs)
}

// readReport returns all specs, those that were left out, too.
func readReport(t *testing.T, path string) (specs []types.SpecReport) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var reports []types.Report
	if err := json.Unmarshal(text, &reports); err != nil {
		t.Fatalf("read %s: %v", path, err)
	}
	for _, report := range reports {
		specs = append(specs, report.SpecReports.WithLeafNodeType(types.NodeTypeIt)...)
	}
	return specs
}

// judge fails the test for every spec that ends otherwise than it should, and says how many ended how.
func judge(t *testing.T, specs []types.SpecReport) {
	counts := map[string]int{}
	for _, spec := range specs {
		name, why := spec.FullText(), atFault[spec.FullText()]
		counts[spec.State.String()]++
		switch {
		case spec.State == types.SpecStatePending:
			t.Logf("switched off in csi-sanity: %s", name)
		case spec.State == types.SpecStateSkipped:
			t.Errorf("skipped by csi-sanity, for the driver lacks something: %s: %s", name, spec.Failure.Message)
		case spec.Failed() && why == "":
			t.Errorf("failed: %s\n%s\n%s", name, spec.Failure.Message, spec.CapturedGinkgoWriterOutput)
		case spec.Failed():
			t.Logf("failed, for a reason of csi-sanity's own: %s: %s", name, why)
		case why != "":
			t.Errorf("passed, and is said to fail: %s: %s", name, why)
		}
	}
	var words []string
	for state, n := range counts {
		words = append(words, fmt.Sprintf("%d %s", n, state))
	}
	slices.Sort(words)
	t.Logf("%d specs: %s", len(specs), strings.Join(words, ", "))
}
