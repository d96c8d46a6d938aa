package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/diskdriver/nodefacts"
	"github.com/topodisk/topodisk/topology"
)

// The cell's network: the control plane at the hub, each node beside it, the Pods of each node behind it.
var hubAddress = net.IPv4(10, 88, 0, 1).To4()

// serviceAddress is that of the Service kubernetes in the namespace default, by which Pods reach the API server. The hub has
// it, and the API server listens on the Service's port there, so that no proxy is needed on the nodes.
var serviceAddress = net.IPv4(10, 96, 0, 1).To4()

const servicePort = 443

const bridgeName = "lab0"

// Places in the file system of a node.
const (
	linksMount   = "/dev/disk/by-id"
	cgroupMounts = "/sys/fs/cgroup"
	kubeletDir   = "/var/lib/kubelet"
	cniDir       = "/usr/lib/cni" // where Debian's package containernetworking-plugins has its programs
	containerd   = "unix:///run/containerd/containerd.sock"
)

// ManyNodes are n nodes, in turn in the zones h, i and j of cn-hangzhou.
func ManyNodes(n int) []Node {
	const region = "cn-hangzhou"
	var nodes []Node
	for i := range n {
		zone := []string{"h", "i", "j"}[i%3]
		nodes = append(nodes, Node{
			Name:     fmt.Sprintf("node-%s%d", zone, i/3+1),
			Instance: fmt.Sprintf("i-bp1lab%s%d", zone, i/3+1),
			Type:     "ecs.g7.xlarge",
			Region:   region,
			Zone:     region + "-" + zone,
		})
	}
	return nodes
}

// RealNode is a node with a kubelet, containerd and the driver's node plugin, in namespaces of its own. Each of these
// can be stopped and started by itself, and the node as a whole as by its power switch.
type RealNode struct {
	Node
	lab    *Lab
	number int    // from 1
	dir    string // of what is the node's own
	first  *Process
	run    map[string]*Process // by program
}

// Programs of a node.
const (
	Kubelet    = "kubelet"
	Containerd = "containerd"
	NodePlugin = "node-plugin"
)

// RealNode returns the node of that name.
func (l *Lab) RealNode(name string) *RealNode {
	for _, n := range l.real {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// RealNodes returns all nodes in their order.
func (l *Lab) RealNodes() []*RealNode { return l.real }

// startRealNodes starts the nodes side by side and returns when all are Ready. What still keeps Pods off them is the
// startup taint.
func (l *Lab) startRealNodes(ctx context.Context) error {
	if err := l.prepareNodes(); err != nil {
		return err
	}
	var starting sync.WaitGroup
	failed := make([]error, len(l.Nodes))
	for i, n := range l.Nodes {
		node := &RealNode{Node: n, lab: l, number: i + 1, dir: filepath.Join(l.Dir, "nodes", n.Name), run: map[string]*Process{}}
		l.real = append(l.real, node)
		starting.Go(func() { failed[i] = node.powerOn(ctx) })
	}
	starting.Wait()
	if err := errors.Join(failed...); err != nil {
		return err
	}
	if err := l.awaitReadyBut(ctx, nodefacts.StartupTaint); err != nil {
		return err
	}
	return l.awaitAccount(ctx, metav1.NamespaceDefault)
}

// prepareNodes makes what all nodes share: images, and the place that links to devices are mounted on.
func (l *Lab) prepareNodes() error {
	if !InCell() {
		return errors.New("real nodes start inside of a Cell only")
	}
	shell, err := Shell()
	if err != nil {
		return err
	}
	images := append([]Image{Pause(l.opts.Programs.NodeInit, pauseImage), shell}, l.opts.Images...)
	if err := writeImages(l.imagesFile(), runtime.GOARCH, images); err != nil {
		return err
	}
	return os.MkdirAll(linksMount, 0o755)
}

func (l *Lab) imagesFile() string { return filepath.Join(l.Dir, "images.tar") }

// Start switches the node on again, after Kill, and returns when it is Ready and its driver is registered.
func (n *RealNode) Start(ctx context.Context) error {
	if err := n.powerOn(ctx); err != nil {
		return err
	}
	if err := n.StartProgram(ctx, NodePlugin); err != nil {
		return err
	}
	return n.lab.awaitReady(ctx)
}

// powerOn starts containerd and the kubelet.
func (n *RealNode) powerOn(ctx context.Context) error {
	for _, step := range []func(context.Context) error{n.settle, n.connect, n.makeCgroup, n.startContainerd, n.loadImages, n.startKubelet} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	return nil
}

// Kill ends the node as a loss of power does: everything on it ends at once, nothing is unmounted or written.
func (n *RealNode) Kill() {
	for name, proc := range n.run {
		n.lab.processes.forget(proc)
		delete(n.run, name)
	}
	n.lab.processes.stop(n.first, syscall.SIGKILL)
	n.first = nil
}

// Off says whether the node is dead.
func (n *RealNode) Off() bool { return n.first == nil }

// Links is the directory that stands for /dev/disk/by-id on the node.
func (n *RealNode) Links() string { return linksOf(n.lab, n.Node) }

func linksOf(l *Lab, n Node) string { return filepath.Join(l.Dir, "nodes", n.Name, "by-id") }

func (n *RealNode) varDir() string { return filepath.Join(n.dir, "var") }

// HostPath returns where a path below /var of the node is outside of it.
func (n *RealNode) HostPath(path string) string {
	return filepath.Join(n.varDir(), strings.TrimPrefix(path, "/var/"))
}

// settle starts the first process of the node.
func (n *RealNode) settle(ctx context.Context) error {
	for _, dir := range []string{n.Links(), n.varDir(), filepath.Join(n.varDir(), "lib"), filepath.Join(n.varDir(), "log"), filepath.Join(n.varDir(), "tmp")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	settings, err := json.Marshal(map[string]any{
		"hostname": n.Name, "var": n.varDir(), "links": n.Links(),
		// What a kubelet would set on the host is set already, as far as it sees.
		"tunables": map[string]string{
			"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
			"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
		},
	})
	if err != nil {
		return err
	}
	name := "node-" + n.Name
	log := filepath.Join(n.lab.processes.logs, name+".log")
	before, _ := os.ReadFile(log)
	n.first, err = n.lab.processes.start(command{name: name, path: n.lab.opts.Programs.NodeInit, args: []string{string(settings)}, namespaces: cellNamespaces})
	if err != nil {
		return err
	}
	return n.lab.Await(ctx, n.Name+" has settled", startLimit, func(context.Context) (bool, error) {
		said, err := os.ReadFile(log)
		return err == nil && strings.Contains(string(said[len(before):]), "\nsettled\n"), err
	})
}

// connect gives the node its place on the cell's network.
func (n *RealNode) connect(ctx context.Context) error {
	port := fmt.Sprintf("lab0-%d", n.number)
	ip(strings.Fields("link delete " + port)...) //nolint:errcheck // it goes with the node that had it
	for _, args := range []string{
		fmt.Sprintf("link add %s type veth peer name eth0 netns %d", port, n.first.Pid()),
		fmt.Sprintf("link set %s master %s up", port, bridgeName),
		fmt.Sprintf("route replace %s via %s", n.pods(), n.address()),
	} {
		if err := ip(strings.Fields(args)...); err != nil {
			return err
		}
	}
	for _, args := range []string{
		"ip link set lo up", fmt.Sprintf("ip addr add %s/24 dev eth0", n.address()), "ip link set eth0 up",
		fmt.Sprintf("ip route add default via %s", hubAddress),
	} {
		if _, err := n.Exec(ctx, strings.Fields(args)...); err != nil {
			return err
		}
	}
	return nil
}

func (n *RealNode) address() string { return fmt.Sprintf("10.88.0.%d", 10+n.number) }
func (n *RealNode) pods() string    { return fmt.Sprintf("10.89.%d.0/24", n.number) }

// Exec runs a program on the node, outside of any Pod, and returns its output.
func (n *RealNode) Exec(ctx context.Context, args ...string) (string, error) {
	if n.first == nil {
		return "", fmt.Errorf("node %s is off", n.Name)
	}
	out, err := exec.CommandContext(ctx, "nsenter", append(enterNode(n.first.Pid()), args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("on %s: %s: %w: %s", n.Name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return strings.TrimSpace(string(out)), nil
}

// cgroup is the path of the node's cgroup in every hierarchy.
func (n *RealNode) cgroup() string { return "/" + Cell{n.lab.Dir}.cgroup() + "/" + n.Name }

// makeCgroup makes the node's cgroup in every hierarchy. Those of cpuset start without a CPU to run on.
func (n *RealNode) makeCgroup(context.Context) error {
	hierarchies, err := os.ReadDir(cgroupMounts)
	if err != nil {
		return err
	}
	for _, h := range hierarchies {
		if !h.IsDir() {
			continue
		}
		at := filepath.Join(cgroupMounts, h.Name())
		for part := range strings.SplitSeq(strings.Trim(n.cgroup(), "/"), "/") {
			above := at
			at = filepath.Join(at, part)
			if err := os.MkdirAll(at, 0o755); err != nil {
				return fmt.Errorf("make a cgroup: %w", err)
			}
			for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
				value, err := os.ReadFile(filepath.Join(above, file))
				if errors.Is(err, os.ErrNotExist) {
					continue
				}
				if err == nil {
					err = os.WriteFile(filepath.Join(at, file), value, 0)
				}
				if err != nil {
					return fmt.Errorf("let a cgroup have the CPUs and memory of the one above: %w", err)
				}
			}
		}
	}
	return nil
}

// containerdConfig has containerd keep everything in the node's own /var and /run, and never ask for what a machine
// without CAP_SYS_RESOURCE can't give.
const containerdConfig = `version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs"]
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

// podNetwork is one bridge a node, whose Pods the other nodes reach by way of the hub.
const podNetwork = `{"cniVersion": "0.4.0", "name": "lab", "plugins": [{"type": "bridge", "bridge": "cni0", "isGateway": true,
"ipam": {"type": "host-local", "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
`

func (n *RealNode) startContainerd(ctx context.Context) error {
	network := filepath.Join(n.dir, "cni")
	config := filepath.Join(n.dir, "containerd.toml")
	if err := os.MkdirAll(network, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(network, "10-lab.conflist"), fmt.Appendf(nil, podNetwork, n.pods()), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(config, fmt.Appendf(nil, containerdConfig, pauseImage, cniDir, network), 0o644); err != nil {
		return err
	}
	path, err := exec.LookPath("containerd")
	if err != nil {
		return fmt.Errorf("%w: install Debian's packages containerd, runc, containernetworking-plugins and busybox-static", err)
	}
	if err := n.start(Containerd, path, "--config="+config); err != nil {
		return err
	}
	return n.lab.Await(ctx, "containerd of "+n.Name+" answers", startLimit, func(ctx context.Context) (bool, error) {
		_, err := n.Exec(ctx, "ctr", "version")
		return err == nil, err
	})
}

func (n *RealNode) loadImages(ctx context.Context) error {
	for _, archive := range append([]string{n.lab.imagesFile()}, n.lab.opts.Archives...) {
		if _, err := n.Exec(ctx, "ctr", "--namespace=k8s.io", "images", "import", archive); err != nil {
			return err
		}
	}
	return nil
}

// kubeletConfig is a kubelet that stays within the node's cgroup and directories, and doesn't clear away images. It says
// at once which volumes it has unmounted, and looks often at which have grown.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: false}
  x509: {clientCAFile: %[1]q}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupRoot: %[2]q
containerRuntimeEndpoint: %[3]q
evictionHard: {memory.available: 50Mi, nodefs.available: 1%%, imagefs.available: 1%%}
failCgroupV1: false
failSwapOn: false
imageGCHighThresholdPercent: 100
makeIPTablesUtilChains: false
maxPods: 110
nodeLeaseDurationSeconds: 20
nodeStatusUpdateFrequency: 1s
providerID: %[4]q
registerWithTaints: [{key: %[5]s, effect: NoSchedule}]
resolvConf: ""
syncFrequency: 5s
volumePluginDir: %[6]q
`

func (n *RealNode) startKubelet(context.Context) error {
	config := filepath.Join(n.dir, "kubelet.yaml")
	text := fmt.Appendf(nil, kubeletConfig, n.lab.plane.certs.ca, n.cgroup(), containerd, n.Region+"."+n.Instance, nodefacts.StartupTaint, kubeletDir+"/volume-plugins")
	if err := os.WriteFile(config, text, 0o644); err != nil {
		return err
	}
	user := kubeletUser(n.Node)
	kubeconfig, err := n.lab.plane.kubeconfigAt(hubAddress.String(), user, n.lab.plane.tokens[user])
	if err != nil {
		return err
	}
	labels := fmt.Sprintf("%s=%s,%s=%s,node.kubernetes.io/instance-type=%s", topology.WellKnownZoneKey, n.Zone, topology.RegionKey, n.Region, n.Type)
	return n.start(Kubelet, filepath.Join(n.lab.opts.Programs.Kubelet, "kubelet"), "--config="+config, "--kubeconfig="+kubeconfig,
		"--root-dir="+kubeletDir, "--cert-dir="+kubeletDir+"/pki", "--hostname-override="+n.Name, "--node-ip="+n.address(),
		"--node-labels="+labels, "--v=2")
}

// kubeletUser is whom the API server takes the node's kubelet for.
func kubeletUser(n Node) string { return "system:node:" + n.Name }

// start runs a program on the node.
func (n *RealNode) start(name, path string, args ...string) error {
	if n.run[name] != nil {
		return fmt.Errorf("%s of %s runs already", name, n.Name)
	}
	proc, err := n.lab.processes.start(command{name: name + "-" + n.Name, path: path, args: args, node: n.first.Pid()})
	if err != nil {
		return err
	}
	n.run[name] = proc
	return nil
}

// StartProgram starts one of the node's programs again that was stopped.
func (n *RealNode) StartProgram(ctx context.Context, name string) error {
	switch name {
	case Kubelet:
		return n.startKubelet(ctx)
	case Containerd:
		return n.startContainerd(ctx)
	default:
		return n.startPlugin()
	}
}

// StopProgram ends one of the node's programs, with SIGTERM, or with SIGKILL if kill is set.
func (n *RealNode) StopProgram(name string, kill bool) {
	if proc := n.run[name]; proc != nil {
		sig := syscall.SIGTERM
		if kill {
			sig = syscall.SIGKILL
		}
		n.lab.processes.stop(proc, sig)
		delete(n.run, name)
	}
}

// Terminate sends SIGTERM to one of the node's programs and returns a function that waits for its end, however long that
// takes, and returns how long it took.
func (n *RealNode) Terminate(name string) (ended func(context.Context) (time.Duration, error), err error) {
	proc, begin := n.run[name], time.Now()
	if proc == nil {
		return nil, fmt.Errorf("%s of %s doesn't run", name, n.Name)
	}
	n.lab.processes.forget(proc)
	delete(n.run, name)
	return func(ctx context.Context) (time.Duration, error) {
		select {
		case <-proc.done:
			return time.Since(begin), proc.err
		case <-ctx.Done():
			proc.end(syscall.SIGKILL)
			return 0, fmt.Errorf("%s of %s goes on after SIGTERM: %w", name, n.Name, ctx.Err())
		}
	}, proc.signal(syscall.SIGTERM)
}

// Mounts returns the mount points of the node whose paths contain a text.
func (n *RealNode) Mounts(part string) ([]string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", n.first.Pid()))
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.Contains(fields[4], part) {
			found = append(found, fields[4])
		}
	}
	return found, nil
}

// Memory returns the resident memory of a program of the lab in MiB.
func (p *Process) Memory() (int, error) {
	pid := p.Pid()
	if p.in {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		if err != nil {
			return 0, err
		}
		if pid, err = strconv.Atoi(strings.TrimSpace(string(children))); err != nil {
			return 0, err
		}
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	pages, err := strconv.Atoi(fields[1])
	return pages * os.Getpagesize() >> 20, err
}

// MemoryReport says how much resident memory the lab's programs have, by program.
func (l *Lab) MemoryReport() string {
	sums, total := map[string]int{}, 0
	for _, proc := range l.processes.running() {
		name := proc.Name
		for _, n := range l.real {
			name = strings.TrimSuffix(name, "-"+n.Name)
		}
		mib, err := proc.Memory()
		if err != nil {
			continue // it ends just now
		}
		sums[name] += mib
		total += mib
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, sums[name]))
	}
	return fmt.Sprintf("resident memory in MiB: %s; in all %d", strings.Join(parts, ", "), total)
}
