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

	"github.com/topodisk/topodisk/test/lab/process"
	"github.com/topodisk/topodisk/test/lab/sandbox"
	"github.com/topodisk/topodisk/test/lab/simulator"
)

// Names of topodisk's processes, which are those of their log files.
const (
	DriverProgram   = simulator.DriverProgram
	ProvisionerName = "disk-provisioner"
)

// podGrace is how long after SIGTERM a Pod is killed that says nothing about it, as topodisk's controller doesn't.
const podGrace = 30 * time.Second

// Topodisk is the simulator and topodisk's two programs, each of which can be stopped and started by itself: the installation's
// provisioner any number of times under different names.
type Topodisk struct {
	*Release
	Socket string          // where the driver serves CSI
	Gate   *simulator.Gate // what ECS is reached through; nil without Options.Gate
	Env    []string        // of driver and provisioners that are started from now on, beyond what they always get
	keys   string          // directory of the credentials
	ecs    string          // URL that the driver is given: the simulator's, or the gate's
}

func (l *Lab) startTopodisk(ctx context.Context) error {
	install, err := readInstallation(filepath.Join(l.opts.Root, "deploy", "topodisk.yaml"))
	if err != nil {
		return err
	}
	release, err := l.newRelease(ctx, install, "topodisk", l.opts.Pod)
	if err != nil {
		return err
	}
	t := &Topodisk{Release: release, Socket: filepath.Join(l.Dir, "csi.sock"), keys: filepath.Join(l.Dir, "credentials")}
	l.Topodisk = t
	if err := errors.Join(t.WriteCredentials(simulator.KeyID, simulator.Secret), l.startSimulator(ctx)); err != nil {
		return err
	}
	t.ecs = l.Simulator.URL
	if l.opts.Gate {
		if t.Gate, err = simulator.NewGate(t.ecs); err != nil {
			return err
		}
		t.ecs = t.Gate.URL()
	}
	if err := t.StartDriver(ctx, l.opts.DriverArgs...); err != nil {
		return err
	}
	return t.StartProvisioner(ctx, ProvisionerName, l.opts.ProvisionerArgs...)
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
func (l *Lab) startSimulator(ctx context.Context) (err error) {
	host := "127.0.0.1"
	if l.opts.InPods {
		host = sandbox.GatewayAddress.String()
	}
	c := process.Command{Path: l.Program(simulator.Program)}
	for _, zone := range l.Zones() {
		c.Args = append(c.Args, "--zone="+zone)
	}
	for _, n := range l.Nodes {
		c.Args = append(c.Args, fmt.Sprintf("--instance=%s=%s/%s", n.Instance, n.Zone, n.Type))
		if l.opts.RealNodes {
			c.Args = append(c.Args, "--links="+n.Instance+"="+l.links(n))
		}
	}
	if l.opts.RealNodes {
		c.Args = append(c.Args, "--bodies="+filepath.Join(l.Dir, "bodies"))
	}
	c.Args = append(c.Args, l.opts.SimulatorArgs...)
	l.Simulator, err = simulator.Start(ctx, l.Group, c, host, l.Nodes[0].Region)
	return err
}

// Program is the path of one of topodisk's programs.
func (l *Lab) Program(name string) string { return filepath.Join(l.opts.Programs.Topodisk, name) }

// StartDriver starts disk-driver with the installation's flags and then args, and returns when it answers. It keeps the
// facts of nodes (docs/node-facts.md), unless args have it leave them.
func (t *Topodisk) StartDriver(ctx context.Context, args ...string) error {
	return t.serve(ctx, DriverProgram, DriverProgram, DriverProgram, append(t.cloudArgs(t.Socket), args...))
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
	return t.serve(ctx, name, provisionerContainer, ProvisionerName, append([]string{"--csi-address=" + t.Socket, "--v=4"}, args...))
}

func (t *Topodisk) serve(ctx context.Context, name, container, program string, args []string) error {
	if t.lab.Find(name) != nil {
		return fmt.Errorf("%s runs already", name)
	}
	c, err := t.command(name, container, t.lab.Program(program), args...)
	if err != nil {
		return err
	}
	if t.lab.opts.RaceDetector {
		c.Env = append(c.Env, "KUBE_CACHE_MUTATION_DETECTOR=true")
	}
	c.Env = append(c.Env, t.Env...)
	_, err = t.lab.Serve(ctx, c, "/healthz")
	return err
}

// AwaitReady returns when the process of that name says that it is ready: a provisioner then has full caches, whether it
// leads or stands by.
func (t *Topodisk) AwaitReady(ctx context.Context, name string) error {
	proc := t.lab.Find(name)
	if proc == nil {
		return fmt.Errorf("%s does not run", name)
	}
	return t.lab.AwaitPage(ctx, proc, t.lab.URL(name, "/readyz"))
}

// Ended says whether a process of that name was started and has ended by itself. One that has counts as stopped from
// then on, so that it can be started again.
func (t *Topodisk) Ended(name string) bool {
	proc := t.lab.Find(name)
	if proc == nil || !proc.Ended() {
		return false
	}
	t.Stop(name)
	return true
}

// Stop ends the driver, or the provisioner of that name, with SIGTERM, unless it doesn't run.
func (t *Topodisk) Stop(name string) { t.end(name, false) }

// Kill ends it with SIGKILL, in the middle of whatever it does.
func (t *Topodisk) Kill(name string) { t.end(name, true) }

func (t *Topodisk) end(name string, kill bool) {
	if proc := t.lab.Find(name); proc != nil {
		t.lab.StopProgram(proc, kill)
	}
}

// Signal sends it a signal and does not wait for what follows: Ended says when it has ended after SIGTERM.
func (t *Topodisk) Signal(name string, sig syscall.Signal) error {
	proc := t.lab.Find(name)
	if proc == nil {
		return fmt.Errorf("%s does not run", name)
	}
	return proc.Signal(sig)
}

// DrainController ends the provisioner and then the driver with SIGTERM, and gives both the time that a Pod has to end what
// is under way. It returns an error if they need longer.
func (t *Topodisk) DrainController() error {
	both := []*process.Process{t.lab.Find(ProvisionerName), t.lab.Find(DriverProgram)}
	if slices.Contains(both, nil) {
		return fmt.Errorf("%s and %s do not both run", ProvisionerName, DriverProgram)
	}
	return t.lab.Drain(syscall.SIGTERM, podGrace, both...)
}
