package lab

import (
	"context"
	"errors"
	"path/filepath"
	"syscall"

	"github.com/topodisk/topodisk/test/lab/process"
)

// attacherName is the container of csi-attacher, and its program.
const attacherName = "csi-attacher"

// ControllerPod is a Pod of a Deployment as processes of this machine: disk-driver and, beside it on its socket, another program, with
// the flags and permissions of the installation. Any number may run.
type ControllerPod struct {
	Name   string
	Socket string // where its driver serves CSI
	Beside *process.Process

	group  *process.Group
	driver *process.Process
}

// startDriver begins a Pod with disk-driver.
func (r *Release) startDriver(ctx context.Context, name, path string) (p *ControllerPod, err error) {
	p = &ControllerPod{Name: name, Socket: filepath.Join(r.lab.Dir, name+".sock"), group: r.lab.Group}
	p.driver, err = r.serve(ctx, name+"-"+DriverProgram, DriverProgram, path, r.lab.Topodisk.cloudArgs(p.Socket)...)
	return p, err
}

// StartController starts a Pod with the programs of a directory, and returns when both are alive: disk-provisioner has the
// Deployment's flags and then args.
func (r *Release) StartController(ctx context.Context, programs string, args ...string) (*ControllerPod, error) {
	name := r.install.deployment.Name
	p, err := r.startDriver(ctx, name, filepath.Join(programs, DriverProgram))
	if err != nil {
		return nil, err
	}
	p.Beside, err = r.serve(ctx, name+"-"+provisionerContainer, provisionerContainer, filepath.Join(programs, ProvisionerName),
		append([]string{"--csi-address=" + p.Socket, "--v=4"}, args...)...)
	return p, err
}

// StartControllerPod starts a Pod with csi-attacher, whose name no other has, and returns when both programs answer. One csi-attacher
// leads.
func (l *Lab) StartControllerPod(ctx context.Context, name string) (*ControllerPod, error) {
	p, err := l.Topodisk.startDriver(ctx, name, l.Program(DriverProgram))
	if err != nil {
		return nil, err
	}
	attacher, err := l.Topodisk.command(name+"-"+attacherName, attacherName, l.sidecar(attacherName), "--csi-address="+p.Socket, "--v=4")
	if err == nil {
		p.Beside, err = l.Serve(ctx, onHost(name, attacher), "/healthz/leader-election")
	}
	return p, err
}

// onHost gives a program a host name of its own, which is what csi-attacher calls itself in its Lease.
func onHost(name string, c process.Command) process.Command {
	c.Args = append([]string{"-c", `hostname "$0" && exec "$@"`, name, c.Path}, c.Args...)
	c.Path, c.Namespaces = "/bin/sh", syscall.CLONE_NEWUTS
	return c
}

// Signal sends a signal to both programs. From then on it is no failure of the lab if they end.
func (p *ControllerPod) Signal(sig syscall.Signal) error {
	p.group.MayEnd(p.driver)
	p.group.MayEnd(p.Beside)
	return errors.Join(p.Beside.Signal(sig), p.driver.Signal(sig))
}

// End sends a signal to the program beside the driver and, when that has ended, to the driver, and gives both the time that a Pod has.
func (p *ControllerPod) End(sig syscall.Signal) error {
	return p.group.Drain(sig, podGrace, p.Beside, p.driver)
}
