package lab

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/mount-utils"

	"github.com/topodisk/topodisk/test/lab/process"
	"github.com/topodisk/topodisk/test/lab/sandbox"
)

// Places in the file system of a node.
const (
	kubeletDir = "/var/lib/kubelet"
	cniDir     = "/usr/lib/cni" // where Debian's package containernetworking-plugins has its programs
	containerd = "unix:///run/containerd/containerd.sock"
)

// RealNode is a node with a kubelet, containerd and the driver's node plugin, in namespaces of its own. Each of these
// can be stopped and started by itself, and the node as a whole as by its power switch.
type RealNode struct {
	Node
	lab    *Lab
	number int // from 1
	init   *process.Process
	run    map[string]*process.Process // by program
}

// Programs of a node.
const (
	Kubelet    = "kubelet"
	Containerd = "containerd"
	NodePlugin = "node-plugin"
)

// RealNode returns the node of that name, nil if there is none.
func (l *Lab) RealNode(name string) *RealNode {
	return l.findReal(func(n *RealNode) bool { return n.Name == name })
}

// RealNodeAt returns the node of that IP address, nil if there is none.
func (l *Lab) RealNodeAt(address string) *RealNode {
	return l.findReal(func(n *RealNode) bool { return n.address() == address })
}

func (l *Lab) findReal(is func(*RealNode) bool) *RealNode {
	if i := slices.IndexFunc(l.RealNodes, is); i >= 0 {
		return l.RealNodes[i]
	}
	return nil
}

// Off says whether the node is dead.
func (n *RealNode) Off() bool { return n.init == nil }

// Links is the directory that stands for /dev/disk/by-id on the node.
func (n *RealNode) Links() string { return n.lab.links(n.Node) }

func (l *Lab) links(n Node) string { return filepath.Join(l.nodeDir(n), "by-id") }

// nodeDir is the directory of what is a real node's own.
func (l *Lab) nodeDir(n Node) string { return filepath.Join(l.Dir, "nodes", n.Name) }

func (n *RealNode) dir() string    { return n.lab.nodeDir(n.Node) }
func (n *RealNode) varDir() string { return filepath.Join(n.dir(), "var") }

// HostPath returns where a path below /var of the node is outside of it.
func (n *RealNode) HostPath(path string) string {
	return filepath.Join(n.varDir(), strings.TrimPrefix(path, "/var/"))
}

func (n *RealNode) address() string { return fmt.Sprintf("10.88.0.%d", 10+n.number) }
func (n *RealNode) pods() string    { return fmt.Sprintf("10.89.%d.0/24", n.number) }

// Exec runs a program on the node, outside of any Pod, and returns its output.
func (n *RealNode) Exec(ctx context.Context, args ...string) (string, error) {
	if n.Off() {
		return "", fmt.Errorf("node %s is off", n.Name)
	}
	out, err := n.Command(ctx, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("on %s: %s: %w: %s", n.Name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return strings.TrimSpace(string(out)), nil
}

// Command is a program to run on the node, which is not off.
func (n *RealNode) Command(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append(process.EnterNode(n.init.Pid()), args...)...)
}

// LoopDevices returns those of the lab with real nodes: of disks, and what kubelets have put on top of them.
func (l *Lab) LoopDevices() ([]string, error) { return sandbox.Sandbox{Dir: l.Dir}.Loops() }

// Mounts returns the mount points of the node whose paths contain a text.
func (n *RealNode) Mounts(part string) ([]string, error) {
	if n.Off() {
		return nil, fmt.Errorf("node %s is off", n.Name)
	}
	mounts, err := mount.ParseMountInfo(fmt.Sprintf("/proc/%d/mountinfo", n.init.Pid()))
	var found []string
	for _, m := range mounts {
		if strings.Contains(m.MountPoint, part) {
			found = append(found, m.MountPoint)
		}
	}
	return found, err
}
