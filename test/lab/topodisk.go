package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/topodisk/topodisk/test/lab/process"
	"github.com/topodisk/topodisk/test/lab/sandbox"
	"github.com/topodisk/topodisk/test/lab/simulator"
)

// Names of the containers and of the log files of topodisk's processes.
const (
	driverName      = simulator.DriverProgram
	ProvisionerName = "disk-provisioner"
)

// podGrace is how long after SIGTERM a Pod is killed that says nothing about it, as topodisk's controller doesn't.
const podGrace = 30 * time.Second

// Topodisk is the simulator and topodisk's two programs, each of which can be stopped and started by itself.
type Topodisk struct {
	lab        *Lab
	install    *installation
	kubeconfig string // of the installation's ServiceAccount
	socket     string // between provisioner and driver
	keys       string // directory of the credentials
	ecs        string // URL that the driver is given: the simulator's, or the gate's
	gate       *simulator.Gate
	http       map[string]int // port of health and metrics, by process name
	running    map[string]*process.Process
	env        []string // of what is started, beyond what it always gets
	pod        string   // that driver and provisioners take themselves for
}

func (l *Lab) startTopodisk(ctx context.Context) error {
	install, err := readInstallation(filepath.Join(l.opts.Root, "deploy", "topodisk.yaml"))
	if err != nil {
		return err
	}
	t := l.newTopodisk()
	t.install, t.socket, t.keys = install, filepath.Join(l.Dir, "csi.sock"), filepath.Join(l.Dir, "credentials")
	if err := l.createObjects(ctx, install.objects); err != nil {
		return err
	}
	token, err := install.token(ctx, l, install.deployment.Spec.Template.Spec.ServiceAccountName)
	if err != nil {
		return err
	}
	if t.kubeconfig, err = l.Plane.Kubeconfig("topodisk", token); err != nil {
		return err
	}
	if l.opts.Pod {
		if t.pod, err = install.createDeployment(ctx, l); err != nil {
			return err
		}
	}
	if err := t.WriteCredentials(simulator.KeyID, simulator.Secret); err != nil {
		return err
	}
	for _, start := range []func(context.Context) error{t.startSimulator, t.openGate} {
		if err := start(ctx); err != nil {
			return err
		}
	}
	if err := t.StartDriver(ctx, l.opts.DriverArgs...); err != nil {
		return err
	}
	return t.StartProvisioner(ctx, ProvisionerName, l.opts.ProvisionerArgs...)
}

// startCloud starts the simulator alone.
func (l *Lab) startCloud(ctx context.Context) error { return l.newTopodisk().startSimulator(ctx) }

func (l *Lab) newTopodisk() *Topodisk {
	l.topodisk = &Topodisk{lab: l, http: map[string]int{}, running: map[string]*process.Process{}}
	return l.topodisk
}

// WriteCredentials puts an access key where the driver reads it, while it runs as well. It does as the kubelet does with
// a Secret: the files are links through the link ..data to a directory that never changes, and ..data moves on at once.
func (t *Topodisk) WriteCredentials(id, secret string) error {
	if err := os.MkdirAll(t.keys, 0o700); err != nil {
		return err
	}
	next, err := os.MkdirTemp(t.keys, "..")
	if err != nil {
		return err
	}
	for name, value := range map[string]string{"access-key-id": id, "access-key-secret": secret} {
		if err := os.WriteFile(filepath.Join(next, name), []byte(value), 0o600); err != nil {
			return err
		}
		link := filepath.Join(t.keys, name)
		if err := os.Symlink(filepath.Join("..data", name), link); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	link := filepath.Join(t.keys, "..data")
	if err := os.Symlink(filepath.Base(next), link+".new"); err != nil {
		return err
	}
	return os.Rename(link+".new", link)
}

// startSimulator starts an ECS that has the lab's zones and instances and checks signatures.
func (t *Topodisk) startSimulator(ctx context.Context) error {
	var port int
	if err := process.FreePorts(&port); err != nil {
		return err
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	if t.lab.opts.InPods {
		address = fmt.Sprintf("%s:%d", sandbox.GatewayAddress, port)
	}
	nodes := t.lab.Nodes
	args := []string{"--listen=" + address, "--region=" + nodes[0].Region, "--access-key=" + simulator.KeyID + "=" + simulator.Secret}
	for _, zone := range zonesOf(nodes) {
		args = append(args, "--zone="+zone)
	}
	for _, n := range nodes {
		args = append(args, fmt.Sprintf("--instance=%s=%s/%s", n.Instance, n.Zone, n.Type))
	}
	if t.lab.opts.RealNodes {
		args = append(args, "--bodies="+filepath.Join(t.lab.Dir, "bodies"))
		for _, n := range nodes {
			args = append(args, "--links="+n.Instance+"="+t.lab.links(n))
		}
	}
	t.ecs = "http://" + address
	t.lab.Simulator = simulator.New(t.ecs)
	return t.start(ctx, simulator.Program, simulator.Program, t.ecs+"/_sim/state", append(args, t.lab.opts.SimulatorArgs...))
}

func zonesOf(nodes []Node) []string {
	var zones []string
	for _, n := range nodes {
		if !slices.Contains(zones, n.Zone) {
			zones = append(zones, n.Zone)
		}
	}
	return zones
}

// openGate puts a gate between driver and simulator if the options ask for one.
func (t *Topodisk) openGate(context.Context) (err error) {
	if !t.lab.opts.Gate {
		return nil
	}
	if t.gate, err = simulator.NewGate(t.ecs); err != nil {
		return err
	}
	t.ecs = t.gate.URL()
	return nil
}

// Program is the path of one of topodisk's programs.
func (t *Topodisk) Program(name string) string {
	return filepath.Join(t.lab.opts.Programs.Topodisk, name)
}

// Kubeconfig is the file that driver and provisioner are given, with the permissions that are installed.
func (t *Topodisk) Kubeconfig() string { return t.kubeconfig }

// Socket is where the driver serves CSI.
func (t *Topodisk) Socket() string { return t.socket }

// Ended says whether a process of that name was started and has ended by itself. One that has counts as stopped from
// then on, so that it can be started again.
func (t *Topodisk) Ended(name string) bool {
	proc := t.running[name]
	if proc == nil || !proc.Ended() {
		return false
	}
	t.stop(name, syscall.SIGTERM)
	return true
}

// Gate is what ECS is reached through; nil without Options.Gate.
func (t *Topodisk) Gate() *simulator.Gate { return t.gate }

// StartDriver starts disk-driver with the installation's flags and then args, and returns when it answers. It keeps the
// facts of nodes (docs/node-facts.md), unless args have it leave them.
func (t *Topodisk) StartDriver(ctx context.Context, args ...string) error {
	port, err := t.httpPort(driverName)
	if err != nil {
		return err
	}
	flags, err := t.driverArgs(t.socket)
	if err != nil {
		return err
	}
	flags = append(flags, fmt.Sprintf("--http-endpoint=127.0.0.1:%d", port))
	return t.start(ctx, driverName, driverName, fmt.Sprintf("http://127.0.0.1:%d/healthz", port), append(flags, args...))
}

// driverArgs are the installation's flags for a driver that serves CSI at a socket.
func (t *Topodisk) driverArgs(socket string) ([]string, error) {
	flags, err := t.install.args(driverName)
	return append(append(flags, "--kubeconfig="+t.kubeconfig), t.cloudArgs(socket)...), err
}

// cloudArgs are a driver's flags that say where it serves, and what its cloud is.
func (t *Topodisk) cloudArgs(socket string) []string {
	return []string{
		"--endpoint=unix://" + socket, "--ecs-endpoint=" + t.ecs, "--cluster-id=" + simulator.ClusterID, "--region=" + t.lab.Nodes[0].Region,
		"--credentials-dir=" + t.keys, "--v=4",
	}
}

// StartProvisioner starts a disk-provisioner under a name of its own, with the installation's flags and then args,
// and returns when it is alive; it may then wait for its turn to lead.
func (t *Topodisk) StartProvisioner(ctx context.Context, name string, args ...string) error {
	flags, err := t.install.args("csi-provisioner")
	if err != nil {
		return err
	}
	port, err := t.httpPort(name)
	if err != nil {
		return err
	}
	flags = append(flags, "--csi-address="+t.socket, "--kubeconfig="+t.kubeconfig, fmt.Sprintf("--http-endpoint=127.0.0.1:%d", port), "--v=4")
	return t.start(ctx, name, ProvisionerName, fmt.Sprintf("http://127.0.0.1:%d/healthz", port), append(flags, args...))
}

// Process is the process of that name that runs; nil if none does.
func (t *Topodisk) Process(name string) *process.Process { return t.running[name] }

// AwaitReady returns when the process of that name says that it is ready: a provisioner then has full caches, whether it
// leads or stands by.
func (t *Topodisk) AwaitReady(ctx context.Context, name string) error {
	proc := t.running[name]
	if proc == nil {
		return fmt.Errorf("%s does not run", name)
	}
	return t.lab.processes.AwaitPage(ctx, proc, fmt.Sprintf("http://127.0.0.1:%d/readyz", t.http[name]))
}

// httpPort is the same one each time a process of that name is started.
func (t *Topodisk) httpPort(name string) (int, error) {
	if port, ok := t.http[name]; ok {
		return port, nil
	}
	var port int
	err := process.FreePorts(&port)
	t.http[name] = port
	return port, err
}

func (t *Topodisk) start(ctx context.Context, name, program, health string, args []string) error {
	if t.running[name] != nil {
		return fmt.Errorf("%s runs already", name)
	}
	path := t.Program(program)
	var env []string
	if t.lab.opts.RaceDetector {
		env = []string{"KUBE_CACHE_MUTATION_DETECTOR=true"}
	}
	if t.pod != "" && program != simulator.Program {
		env = append(env, "POD_NAME="+t.pod, "POD_NAMESPACE="+metav1.NamespaceSystem)
	}
	env = append(env, t.env...)
	proc, err := t.lab.processes.Start(process.Command{Name: name, Path: path, Args: args, Env: env})
	if err != nil {
		return err
	}
	t.running[name] = proc
	return t.lab.processes.AwaitPage(ctx, proc, health)
}

// StopDriver ends the driver with SIGTERM.
func (t *Topodisk) StopDriver() { t.stop(driverName, syscall.SIGTERM) }

// KillDriver ends the driver with SIGKILL, in the middle of whatever it does.
func (t *Topodisk) KillDriver() { t.stop(driverName, syscall.SIGKILL) }

// StopProvisioner ends the provisioner of that name with SIGTERM.
func (t *Topodisk) StopProvisioner(name string) { t.stop(name, syscall.SIGTERM) }

// KillProvisioner ends the provisioner of that name with SIGKILL.
func (t *Topodisk) KillProvisioner(name string) { t.stop(name, syscall.SIGKILL) }

func (t *Topodisk) stop(name string, sig syscall.Signal) {
	if proc := t.running[name]; proc != nil {
		t.lab.processes.Stop(proc, sig)
		delete(t.running, name)
	}
}

// DrainController ends the provisioner and then the driver with SIGTERM, and gives both the time that a Pod has to end what
// is under way. It returns an error if they need longer.
func (t *Topodisk) DrainController() error {
	both := []*process.Process{t.running[ProvisionerName], t.running[driverName]}
	if slices.Contains(both, nil) {
		return fmt.Errorf("%s and %s do not both run", ProvisionerName, driverName)
	}
	delete(t.running, ProvisionerName)
	delete(t.running, driverName)
	return t.lab.processes.Drain(syscall.SIGTERM, podGrace, both...)
}

// EndProvisioner sends SIGTERM to the provisioner of that name and does not wait for it; Ended says when it has ended.
func (t *Topodisk) EndProvisioner(name string) error { return t.signal(name, syscall.SIGTERM) }

// SetPod says which Pod of the installation's namespace driver and provisioners that are started from now on run in; empty for none.
func (t *Topodisk) SetPod(name string) { t.pod = name }

// SetEnv gives driver and provisioners that are started from now on further environment.
func (t *Topodisk) SetEnv(env ...string) { t.env = env }

// PauseProvisioner stops the provisioner of that name in the middle of whatever it does, without ending it, until
// ResumeProvisioner lets it go on.
func (t *Topodisk) PauseProvisioner(name string) error { return t.signal(name, syscall.SIGSTOP) }

// ResumeProvisioner undoes PauseProvisioner.
func (t *Topodisk) ResumeProvisioner(name string) error { return t.signal(name, syscall.SIGCONT) }

func (t *Topodisk) signal(name string, sig syscall.Signal) error {
	proc := t.running[name]
	if proc == nil {
		return fmt.Errorf("%s does not run", name)
	}
	return proc.Signal(sig)
}

// Metrics returns the URL of a process' metrics.
func (t *Topodisk) Metrics(name string) string {
	return fmt.Sprintf("http://127.0.0.1:%d/metrics", t.http[name])
}
