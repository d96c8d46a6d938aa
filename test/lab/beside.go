package lab

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/topodisk/topodisk/test/lab/process"
)

// Beside is the controller of another installation: what the chart renders for other values, under another name. Its
// Deployment's Pods never run; programs that are started for one take themselves for it.
type Beside struct {
	Account    string // its ServiceAccount, in kube-system
	Kubeconfig string // with that account's permissions

	lab     *Lab
	install *installation
	pod     string
}

// InstallBeside makes the accounts, the Roles and the Deployment of what the chart has rendered for a release called
// topodisk, under another name.
func (l *Lab) InstallBeside(ctx context.Context, path, name string) (*Beside, error) {
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
	if err := l.apply(ctx, objects); err != nil {
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
	b := &Beside{lab: l, install: install, Account: install.deployment.Spec.Template.Spec.ServiceAccountName}
	token, err := install.token(ctx, l, b.Account)
	if err != nil {
		return nil, err
	}
	if b.Kubeconfig, err = l.Plane.Kubeconfig(name, token); err != nil {
		return nil, err
	}
	b.pod, err = install.makePod(ctx, l)
	return b, err
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
func (b *Beside) Start(container, path string, env, args []string) (*process.Process, error) {
	flags, err := b.install.args(container)
	if err != nil {
		return nil, err
	}
	namespace := b.install.deployment.Namespace
	return b.lab.processes.Start(process.Command{
		Name: b.install.deployment.Name + "-" + container, Path: path, Args: slices.Concat(flags, []string{"--kubeconfig=" + b.Kubeconfig}, args),
		Env: append([]string{"POD_NAME=" + b.pod, "NAMESPACE=" + namespace, "POD_NAMESPACE=" + namespace}, env...),
	})
}

// BesideController is a Pod of the Deployment as processes of this machine: disk-driver and, on its socket, disk-provisioner.
type BesideController struct {
	processes           *process.Group
	driver, provisioner *process.Process
}

// StartController starts the Pod with the programs of a directory, and returns when both are alive: disk-provisioner has the
// Deployment's flags and then args.
func (b *Beside) StartController(ctx context.Context, programs string, args ...string) (c *BesideController, err error) {
	var driverPort, provisionerPort int
	if err := process.FreePorts(&driverPort, &provisionerPort); err != nil {
		return nil, err
	}
	socket := filepath.Join(b.lab.Dir, b.install.deployment.Name+".sock")
	c = &BesideController{processes: b.lab.processes}
	if c.driver, err = b.Start(driverName, filepath.Join(programs, driverName), nil, b.lab.topodisk.cloudArgs(socket, driverPort)); err != nil {
		return nil, err
	}
	if err := c.processes.AwaitPage(ctx, c.driver, fmt.Sprintf("http://127.0.0.1:%d/healthz", driverPort)); err != nil {
		return nil, err
	}
	flags := append([]string{"--csi-address=" + socket, fmt.Sprintf("--http-endpoint=127.0.0.1:%d", provisionerPort), "--v=4"}, args...)
	if c.provisioner, err = b.Start("csi-provisioner", filepath.Join(programs, ProvisionerName), nil, flags); err != nil {
		return nil, err
	}
	return c, c.processes.AwaitPage(ctx, c.provisioner, fmt.Sprintf("http://127.0.0.1:%d/healthz", provisionerPort))
}

// Kill ends both programs in the middle of whatever they do.
func (c *BesideController) Kill() error { return c.end(syscall.SIGKILL) }

// Drain ends the provisioner and then the driver with SIGTERM, and gives both the time that a Pod has.
func (c *BesideController) Drain() error { return c.end(syscall.SIGTERM) }

func (c *BesideController) end(sig syscall.Signal) error {
	return c.processes.Drain(sig, podGrace, c.provisioner, c.driver)
}
