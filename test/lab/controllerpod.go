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
	Name   string
	Socket string // where its driver serves CSI

	group            *process.Group
	driver, attacher *process.Process
}

// StartControllerPod starts a Pod whose name no other has, and returns when both programs answer.
func (l *Lab) StartControllerPod(ctx context.Context, name string) (*ControllerPod, error) {
	p := &ControllerPod{Name: name, Socket: filepath.Join(l.Dir, name+".sock"), group: l.Group}
	driver, err := l.Topodisk.command(name+"-"+DriverProgram, DriverProgram, l.Program(DriverProgram), l.Topodisk.cloudArgs(p.Socket)...)
	if err != nil {
		return nil, err
	}
	if p.driver, err = l.Serve(ctx, driver, "/healthz"); err != nil {
		return nil, err
	}
	attacher, err := l.Topodisk.command(name+"-"+attacherName, attacherName, l.sidecar(attacherName), "--csi-address="+p.Socket, "--v=4")
	if err != nil {
		return nil, err
	}
	p.attacher, err = l.Serve(ctx, onHost(name, attacher), "/healthz/leader-election")
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
	p.group.MayEnd(p.attacher)
	return errors.Join(p.attacher.Signal(sig), p.driver.Signal(sig))
}

// AttacherEnded says whether its csi-attacher has ended, as one does that loses its Lease.
func (p *ControllerPod) AttacherEnded() bool { return p.attacher.Ended() }
