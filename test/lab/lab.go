// Package lab runs topodisk on a real Kubernetes control plane, on one Linux machine and without a cloud; as any user, but
// with real nodes as root:
//
//	etcd, kube-apiserver, kube-controller-manager, kube-scheduler   built from Go modules (test/kube), on loopback
//	KWOK                                                            keeps Nodes Ready that are objects only, and Pods on them Running
//	or kubelets and containerd                                      each a node in namespaces of its own, with real disks (package sandbox, RealNode)
//	ecs-simulator, disk-driver, disk-provisioner                    topodisk's own programs, built from this checkout
//
// The demo (test/demo) tells a story on it, the end-to-end tests (test/e2e, on real nodes test/nodes) assert on it.
// Everything a lab writes is in its state directory; everything it starts is a child of this process and ends with it,
// unless it is to be kept.
package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/topodisk/topodisk/test/lab/controlplane"
	"github.com/topodisk/topodisk/test/lab/images"
	"github.com/topodisk/topodisk/test/lab/process"
	"github.com/topodisk/topodisk/test/lab/programs"
	"github.com/topodisk/topodisk/test/lab/simulator"
)

// Options say what to start.
type Options struct {
	// Root is the checkout (see programs.FindRoot); Programs are built from it.
	Root     string
	Programs programs.Dirs
	// StateDir holds logs, data and kubeconfigs. Empty: a temporary directory that Stop removes.
	StateDir string
	// Keep lets the programs outlive this process and lists them in StateDir for StopKept.
	Keep bool
	// Nodes to register; see SixNodes.
	Nodes []Node
	// Gate puts a simulator.Gate between driver and simulator. It lives in this process, so it does not go with Keep.
	Gate bool
	// SimulatorArgs are flags beyond those that name region, zones, instances and the access key.
	SimulatorArgs []string
	// DriverArgs and ProvisionerArgs are flags beyond those of deploy/topodisk.yaml.
	DriverArgs, ProvisionerArgs []string
	// RealNodes gives every node a kubelet and containerd of its own, and the disks backing files; csi-attacher, csi-resizer,
	// csi-snapshotter and snapshot-controller run beside the driver. The lab is then in a sandbox.Sandbox, and StateDir is its directory.
	RealNodes bool
	// UsualPeriods leaves kubelets their own periods: they tell of their status every ten seconds, and look at each Pod once a
	// minute unless something has changed. Otherwise they do so every second, and every five seconds.
	UsualPeriods bool
	// Images are those that real nodes have besides images.PauseName and images.ShellName, Archives files of such.
	Images   []images.Image
	Archives []string
	// InPods leaves topodisk and the sidecars to be installed as Pods on real nodes: of them the lab runs ecs-simulator, which
	// Pods reach, and snapshot-controller.
	InPods bool
	// RestartPeriod is for how long at most real nodes wait before they start a container again that has ended; 0 for the
	// kubelet's default, five minutes.
	RestartPeriod time.Duration
	// Attach has volumes attached to nodes that are objects only: csi-attacher runs, and the attach-detach controller cares for
	// the nodes as for those with kubelets.
	Attach bool
	// Bare leaves out kwok, the nodes, the simulator and topodisk: what is left is the control plane.
	Bare bool
	// Audit has the API server write a line for every request, to AuditLog.
	Audit bool
	// Controllers are the only ones that kube-controller-manager runs; none for those that it runs by default.
	Controllers []string
	// RaceDetector says that topodisk's programs are built with the race detector (programs.BuildRace) and run with client-go's
	// detector of changes in a cache, which ends them; CheckLogs reports data races.
	RaceDetector bool
	// BindTimeout is for how long the scheduler waits for the volumes of a Pod before it begins anew; 0 for its default, ten
	// minutes.
	BindTimeout time.Duration
	// Pod has driver and provisioner take themselves for a Pod of the installation's Deployment, which no node runs.
	Pod bool
	// Snapshots installs the kinds of external-snapshotter, without its controllers: tests do their work.
	Snapshots bool
	// Say is told each step of the start with the time it took. May be nil.
	Say func(step string, took time.Duration)
}

// Lab is a running cluster with topodisk in it. Methods that start or stop something are called from one goroutine at a time,
// while no other waits for anything.
type Lab struct {
	Dir        string
	Kubeconfig string // the administrator's
	Kubectl    string // the program
	Client     kubernetes.Interface
	Plane      *controlplane.Plane
	Simulator  *simulator.Client
	Nodes      []Node

	*process.Group
	Topodisk  *Topodisk // nil with Options.InPods
	RealNodes []*RealNode

	opts      Options
	temporary bool
	others    int // drivers that AddDriver has started
	// pluginConfig is the kubeconfig that node plugins are given.
	pluginConfig string
}

// Start brings everything up in the order of dependence and returns when a claim could be made.
// On an error all that was started is stopped again; the error then shows the end of the failing program's log.
func Start(ctx context.Context, opts Options) (*Lab, error) {
	if opts.Say == nil {
		opts.Say = func(string, time.Duration) {}
	}
	l := &Lab{Dir: opts.StateDir, opts: opts, Nodes: opts.Nodes, Kubectl: filepath.Join(opts.Programs.Kube, "kubectl")}
	if err := l.makeDir(); err != nil {
		return nil, err
	}
	l.Group = process.NewGroup(l.Dir, opts.Keep)
	for _, step := range l.steps() {
		begin := time.Now()
		if err := step.do(ctx); err != nil {
			err = fmt.Errorf("start %s: %w", step.name, err)
			return nil, errors.Join(err, l.Stop())
		}
		opts.Say(step.name, time.Since(begin))
	}
	return l, nil
}

// step is a part of the start.
type step struct {
	name string
	do   func(context.Context) error
}

// steps are the parts of the start in their order.
func (l *Lab) steps() []step {
	steps := []step{{"etcd, kube-apiserver, kube-controller-manager and kube-scheduler", l.startPlane}}
	if l.opts.Bare {
		return steps
	}
	ours := step{"ecs-simulator, disk-driver and disk-provisioner", l.startTopodisk}
	if !l.opts.RealNodes {
		steps = append(steps, step{fmt.Sprintf("%d nodes, kept Ready by kwok", len(l.Nodes)), l.startNodes}, ours)
		if l.opts.Attach {
			steps = append(steps, step{attacherName, func(context.Context) error {
				_, err := l.StartSidecar(attacherName)
				return err
			}})
		}
		return steps
	}
	steps = append(steps, step{fmt.Sprintf("%d nodes with kubelet and containerd", len(l.Nodes)), l.startRealNodes})
	if l.opts.InPods {
		return append(steps, step{"ecs-simulator", l.startSimulator}, step{"snapshot-controller", l.startSnapshots})
	}
	return append(steps, ours,
		step{"csi-attacher, csi-resizer, csi-snapshotter and snapshot-controller", l.startSidecars},
		step{"the driver's node plugin on every node", l.startPlugins})
}

// startPlane starts the control plane, and installs the CRDs of snapshots if the options ask for them.
func (l *Lab) startPlane(ctx context.Context) (err error) {
	o := controlplane.Options{
		Kube: l.opts.Programs.Kube, Etcd: l.opts.Programs.Etcd, Dir: l.Dir, Group: l.Group,
		Controllers: l.opts.Controllers, BindTimeout: l.opts.BindTimeout,
	}
	if l.opts.Audit {
		o.AuditLog = l.AuditLog()
	}
	if l.opts.RealNodes {
		for _, n := range l.Nodes {
			o.Kubelets = append(o.Kubelets, n.Name)
		}
	}
	if l.Plane, err = controlplane.Start(ctx, o); err != nil {
		return err
	}
	l.Kubeconfig, l.Client = l.Plane.Admin, l.Plane.Client
	if l.opts.Snapshots {
		return l.installSnapshotCRDs(ctx)
	}
	return nil
}

func (l *Lab) makeDir() error {
	if l.Dir != "" {
		return os.MkdirAll(l.Dir, 0o700)
	}
	dir, err := os.MkdirTemp("", "topodisk-lab-")
	l.Dir, l.temporary = dir, true
	return err
}

// AuditLog is the file that the API server writes with Options.Audit: a JSON object of audit.k8s.io/v1 a line, one for
// each request that has been answered.
func (l *Lab) AuditLog() string { return filepath.Join(l.Dir, "audit.log") }

// StartProgram runs a program beside the lab, in the lab's directory; it ends with the lab.
func (l *Lab) StartProgram(name, path string, args ...string) (*process.Process, error) {
	return l.Start(process.Command{Name: name, Path: path, Args: args})
}

// Stop ends every program of the lab, waits for it, and removes a temporary state directory. It may be called twice.
func (l *Lab) Stop() error {
	err := l.StopAll()
	if l.temporary {
		err = errors.Join(err, os.RemoveAll(l.Dir))
	}
	return err
}

// signs are those of a program that was built with the race detector, and of client-go's detector of changes in a cache.
var signs = []string{"WARNING: DATA RACE", " ALTERED!"}

// CheckLogs returns an error if one of the programs has told of a data race, or of a change in what a cache holds, or if
// one that works with the access key has told its secret.
func (l *Lab) CheckLogs() error {
	logs, err := filepath.Glob(filepath.Join(l.Logs, "*.log"))
	if err != nil {
		return err
	}
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, sign := range signs {
			if bytes.Contains(text, []byte(sign)) {
				return fmt.Errorf("%s says %q", path, strings.TrimSpace(sign))
			}
		}
		if !strings.HasPrefix(filepath.Base(path), simulator.Program) && bytes.Contains(text, []byte(simulator.Secret)) {
			return fmt.Errorf("%s tells the secret of the access key", path)
		}
	}
	return nil
}

// KeepLogs makes Stop leave the state directory behind, for a failure that is to be looked into.
func (l *Lab) KeepLogs() { l.temporary = false }
