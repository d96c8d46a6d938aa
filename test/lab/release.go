package lab

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/topodisk/topodisk/test/lab/process"
)

// Release is the controller of another Helm release: what the chart renders for other values, under another name. Its
// Deployment's Pods never run; programs that are started for one take themselves for it.
type Release struct {
	Account    string // its ServiceAccount, in kube-system
	Kubeconfig string // with that account's permissions

	lab     *Lab
	install *installation
	pod     string
}

// InstallRelease makes the accounts, the Roles and the Deployment of what the chart has rendered for a release called
// topodisk, under another name.
func (l *Lab) InstallRelease(ctx context.Context, path, name string) (*Release, error) {
	install, err := readInstallation(path)
	if err != nil {
		return nil, err
	}
	objects := slices.DeleteFunc(install.objects, func(o unstructured.Unstructured) bool {
		return o.GetNamespace() == "" && !strings.HasPrefix(o.GetKind(), "ClusterRole") // what a cluster has once
	})
	for i := range objects {
		rename(objects[i].Object, "topodisk", name)
	}
	if err := l.createObjects(ctx, objects); err != nil {
		return nil, err
	}
	deployment, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&install.deployment)
	if err != nil {
		return nil, err
	}
	rename(deployment, "topodisk", name)
	install.deployment = appsv1.Deployment{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(deployment, &install.deployment); err != nil {
		return nil, err
	}
	r := &Release{lab: l, install: install, Account: install.deployment.Spec.Template.Spec.ServiceAccountName}
	token, err := install.token(ctx, l, r.Account)
	if err != nil {
		return nil, err
	}
	if r.Kubeconfig, err = l.Plane.Kubeconfig(name, token); err != nil {
		return nil, err
	}
	r.pod, err = install.createDeployment(ctx, l)
	return r, err
}

// rename puts another release's name in the place of one, wherever it is a whole value or the beginning of a name; but not
// where a Role names objects, for programs name those after the driver.
func rename(value any, from, to string) any {
	switch v := value.(type) {
	case string:
		if v == from || strings.HasPrefix(v, from+"-") {
			return to + strings.TrimPrefix(v, from)
		}
	case map[string]any:
		for key := range v {
			if key != "resourceNames" {
				v[key] = rename(v[key], from, to)
			}
		}
	case []any:
		for i := range v {
			v[i] = rename(v[i], from, to)
		}
	}
	return value
}

// Start runs a program as a container of the Deployment: with its flags and then args, and with further environment. It ends
// with the lab.
func (r *Release) Start(container, path string, env, args []string) (*process.Process, error) {
	command, err := r.command(container, path, env, args)
	if err != nil {
		return nil, err
	}
	return r.lab.processes.Start(command)
}

func (r *Release) command(container, path string, env, args []string) (process.Command, error) {
	flags, err := r.install.args(container)
	deployment := r.install.deployment
	return process.Command{
		Name: deployment.Name + "-" + container, Path: path, Args: slices.Concat(flags, []string{"--kubeconfig=" + r.Kubeconfig}, args),
		Env: append([]string{"POD_NAME=" + r.pod, "NAMESPACE=" + deployment.Namespace, "POD_NAMESPACE=" + deployment.Namespace}, env...),
	}, err
}

// ReleaseController is a Pod of the Deployment as processes of this machine: disk-driver and, on its socket, disk-provisioner.
type ReleaseController struct {
	processes           *process.Group
	driver, provisioner *process.Process
}

// StartController starts the Pod with the programs of a directory, and returns when both are alive: disk-provisioner has the
// Deployment's flags and then args.
func (r *Release) StartController(ctx context.Context, programs string, args ...string) (c *ReleaseController, err error) {
	socket := filepath.Join(r.lab.Dir, r.install.deployment.Name+".sock")
	c = &ReleaseController{processes: r.lab.processes}
	serve := func(container, program string, args []string) (*process.Process, error) {
		command, err := r.command(container, filepath.Join(programs, program), nil, args)
		if err != nil {
			return nil, err
		}
		return c.processes.Serve(ctx, command, "/healthz")
	}
	if c.driver, err = serve(driverName, driverName, r.lab.topodisk.cloudArgs(socket)); err != nil {
		return nil, err
	}
	c.provisioner, err = serve("csi-provisioner", ProvisionerName, append([]string{"--csi-address=" + socket, "--v=4"}, args...))
	return c, err
}

// Kill ends both programs in the middle of whatever they do.
func (c *ReleaseController) Kill() error { return c.end(syscall.SIGKILL) }

// Drain ends the provisioner and then the driver with SIGTERM, and gives both the time that a Pod has.
func (c *ReleaseController) Drain() error { return c.end(syscall.SIGTERM) }

func (c *ReleaseController) end(sig syscall.Signal) error {
	return c.processes.Drain(sig, podGrace, c.provisioner, c.driver)
}
