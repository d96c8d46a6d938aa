package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/diskdriver/nodefacts"
	"github.com/topodisk/topodisk/test/lab/images"
	"github.com/topodisk/topodisk/test/lab/process"
	"github.com/topodisk/topodisk/test/lab/sandbox"
)

// startRealNodes starts the nodes side by side and returns when all are Ready. What still keeps Pods off them is the
// startup taint.
func (l *Lab) startRealNodes(ctx context.Context) error {
	if err := l.prepareNodes(); err != nil {
		return err
	}
	var starting errgroup.Group
	for i, n := range l.Nodes {
		node := &RealNode{Node: n, lab: l, number: i + 1, run: map[string]*process.Process{}}
		l.RealNodes = append(l.RealNodes, node)
		starting.Go(func() error { return node.powerOn(ctx) })
	}
	if err := starting.Wait(); err != nil {
		return err
	}
	if err := l.awaitReady(ctx, nodefacts.StartupTaint); err != nil {
		return err
	}
	return l.awaitAccount(ctx, metav1.NamespaceDefault)
}

// prepareNodes makes what all nodes share: images, and the place that links to devices are mounted on.
func (l *Lab) prepareNodes() error {
	if !sandbox.Inside() {
		return errors.New("real nodes start inside of a sandbox.Sandbox only")
	}
	shell, err := images.Shell()
	if err != nil {
		return err
	}
	all := append([]images.Image{images.Pause(l.opts.Programs.NodeInit, images.PauseName), shell}, l.opts.Images...)
	if err := images.Write(l.imagesFile(), all); err != nil {
		return err
	}
	return sandbox.Sandbox{Dir: l.Dir}.HoldLinksMount()
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
	for _, step := range []func(context.Context) error{n.startInit, n.connect, n.makeCgroup, n.startContainerd, n.loadImages, n.startKubelet} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	return nil
}

// startInit starts the init process of the node.
func (n *RealNode) startInit(ctx context.Context) error {
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
	log := filepath.Join(n.lab.Logs, name+".log")
	before, _ := os.ReadFile(log)
	n.init, err = n.lab.Start(process.Command{Name: name, Path: n.lab.opts.Programs.NodeInit,
		Args: []string{string(settings)}, Namespaces: sandbox.Namespaces})
	if err != nil {
		return err
	}
	return n.lab.Await(ctx, n.Name+" has settled", process.StartLimit, func(context.Context) (bool, error) {
		said, err := os.ReadFile(log)
		return err == nil && strings.Contains(string(said[len(before):]), "\nsettled\n"), err
	})
}

// connect gives the node its place on the sandbox's network.
func (n *RealNode) connect(ctx context.Context) error {
	port := fmt.Sprintf("lab0-%d", n.number)
	sandbox.IP(strings.Fields("link delete " + port)...) //nolint:errcheck // it goes with the node that had it
	for _, args := range []string{
		fmt.Sprintf("link add %s type veth peer name eth0 netns %d", port, n.init.Pid()),
		fmt.Sprintf("link set %s master %s up", port, sandbox.Bridge),
		fmt.Sprintf("route replace %s via %s", n.pods(), n.address()),
	} {
		if err := sandbox.IP(strings.Fields(args)...); err != nil {
			return err
		}
	}
	for _, args := range []string{
		"ip link set lo up", fmt.Sprintf("ip addr add %s/24 dev eth0", n.address()), "ip link set eth0 up",
		fmt.Sprintf("ip route add default via %s", sandbox.GatewayAddress),
	} {
		if _, err := n.Exec(ctx, strings.Fields(args)...); err != nil {
			return err
		}
	}
	return nil
}

// cgroup is the path of the node's cgroup in every hierarchy.
func (n *RealNode) cgroup() string {
	return "/" + sandbox.Sandbox{Dir: n.lab.Dir}.Name() + "/" + n.Name
}

// podsShare is how much of the CPUs the containers of a lab's nodes get beside what else runs: as much as so many processes. A group of
// processes counts as one otherwise, so that Pods would start five times as slowly beside other tests.
const podsShare = 4

// makeCgroup makes the node's cgroup in every hierarchy; what a node that was switched off has left there would be containers to its
// kubelet. Those of cpuset start without a CPU to run on.
func (n *RealNode) makeCgroup(context.Context) error {
	if _, err := sandbox.SweepCgroups(n.cgroup()); err != nil {
		return err
	}
	roots, err := sandbox.CgroupRoots()
	if err != nil {
		return err
	}
	for _, at := range roots {
		for part := range strings.SplitSeq(strings.Trim(n.cgroup(), "/"), "/") {
			above := at
			at = filepath.Join(at, part)
			if err := os.MkdirAll(at, 0o755); err != nil {
				return fmt.Errorf("make a cgroup: %w", err)
			}
			if err := setShare(at); err != nil {
				return fmt.Errorf("let a cgroup have its share of the CPUs: %w", err)
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

// setShare gives a cgroup its share of the CPUs, if it is of the hierarchy that has them. One process has 1024, or 100 in version 2.
func setShare(cgroup string) error {
	for file, process := range map[string]int{"cpu.shares": 1024, "cpu.weight": 100} {
		path := filepath.Join(cgroup, file)
		if _, err := os.Stat(path); err != nil {
			continue
		}
		if err := os.WriteFile(path, []byte(strconv.Itoa(podsShare*process)), 0); err != nil {
			return err
		}
	}
	return nil
}

// Kill ends the node as a loss of power does: everything on it ends at once, nothing is unmounted or written.
func (n *RealNode) Kill() {
	if n.Off() {
		return
	}
	for name, proc := range n.run {
		n.lab.Forget(proc)
		delete(n.run, name)
	}
	n.lab.StopProgram(n.init, true)
	n.init = nil
}
