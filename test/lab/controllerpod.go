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

// ControllerPod is a Pod of the installation's Deployment as processes of this machine: disk-driver and, beside it,
// csi-attacher, with the flags and permissions of the installation. Any number may run; one csi-attacher leads.
type ControllerPod struct {
	Name string
	lab  *Lab

	driver, attacher *process.Process
}

// StartControllerPod starts a Pod whose name no other has, and returns when both programs answer.
func (l *Lab) StartControllerPod(ctx context.Context, name string) (*ControllerPod, error) {
	p := &ControllerPod{Name: name, lab: l}
	flags, err := l.topodisk.driverArgs(p.Socket())
	if err != nil {
		return nil, err
	}
	driver := process.Command{Name: name + "-" + driverName, Path: filepath.Join(l.opts.Programs.Topodisk, driverName), Args: flags}
	if p.driver, err = l.processes.Serve(ctx, driver, "/healthz"); err != nil {
		return nil, err
	}
	if flags, err = l.topodisk.install.args(attacherName); err != nil {
		return nil, err
	}
	flags = append(flags, "--csi-address="+p.Socket(), "--kubeconfig="+l.topodisk.kubeconfig, "--v=4")
	attacher := process.Command{Name: name + "-" + attacherName, Path: filepath.Join(l.opts.Programs.Sidecars, attacherName), Args: flags}
	p.attacher, err = l.processes.Serve(ctx, onHost(name, attacher), "/healthz/leader-election")
	return p, err
}

// onHost gives a program a host name of its own, which is what csi-attacher calls itself in its Lease.
func onHost(name string, c process.Command) process.Command {
	c.Args = append([]string{"-c", `hostname "$0" && exec "$@"`, name, c.Path}, c.Args...)
	c.Path, c.Namespaces = "/bin/sh", syscall.CLONE_NEWUTS
	return c
}

// Socket is where its driver serves CSI.
func (p *ControllerPod) Socket() string { return filepath.Join(p.lab.Dir, p.Name+".sock") }

// Signal sends a signal to both programs. From then on it is no failure of the lab if they end.
func (p *ControllerPod) Signal(sig syscall.Signal) error {
	p.lab.MayEnd(p.driver)
	p.lab.MayEnd(p.attacher)
	return errors.Join(p.attacher.Signal(sig), p.driver.Signal(sig))
}

// AttacherEnded says whether its csi-attacher has ended, as one does that loses its Lease.
func (p *ControllerPod) AttacherEnded() bool { return p.attacher.Ended() }
