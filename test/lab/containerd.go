package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/topodisk/topodisk/test/lab/images"
	"github.com/topodisk/topodisk/test/lab/process"
)

// containerdConfig has containerd keep everything in the node's own /var and /run, and never ask for what a machine
// without CAP_SYS_RESOURCE can't give.
const containerdConfig = `version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs"]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = true
  disable_apparmor = true
  disable_hugetlb_controller = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
`

// podNetwork is one bridge a node, whose Pods the other nodes reach by way of the gateway.
const podNetwork = `{"cniVersion": "0.4.0", "name": "lab", "plugins": [{"type": "bridge", "bridge": "cni0", "isGateway": true,
"ipam": {"type": "host-local", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
`

func (n *RealNode) startContainerd(ctx context.Context) error {
	network := filepath.Join(n.dir(), "cni")
	config := filepath.Join(n.dir(), "containerd.toml")
	if err := os.MkdirAll(network, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(network, "10-lab.conflist"), fmt.Appendf(nil, podNetwork, n.pods()), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(config, fmt.Appendf(nil, containerdConfig, images.PauseName, cniDir, network), 0o644); err != nil {
		return err
	}
	path, err := exec.LookPath("containerd")
	if err != nil {
		return fmt.Errorf("%w: install Debian's packages containerd, runc, containernetworking-plugins and busybox-static", err)
	}
	env := process.Frugal
	if built := n.lab.opts.Programs.Containerd; built != "" {
		path, env = filepath.Join(built, "containerd"), append(slices.Clone(env), "PATH="+built+":"+os.Getenv("PATH")) // where its shim is found first
	}
	if err := n.startWith(env, Containerd, path, "--config="+config); err != nil {
		return err
	}
	return n.lab.Await(ctx, "containerd of "+n.Name+" answers", process.StartLimit, func(ctx context.Context) (bool, error) {
		_, err := n.Exec(ctx, n.ctr(), "version")
		return err == nil, err
	})
}

// ctr is the client of the node's containerd.
func (n *RealNode) ctr() string { return filepath.Join(n.lab.opts.Programs.Containerd, "ctr") }

func (n *RealNode) loadImages(ctx context.Context) error {
	for _, archive := range append([]string{n.lab.imagesFile()}, n.lab.opts.Archives...) {
		if _, err := n.Exec(ctx, n.ctr(), "--namespace=k8s.io", "images", "import", archive); err != nil {
			return err
		}
	}
	return nil
}
