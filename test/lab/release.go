package lab

import (
	"context"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/topodisk/topodisk/test/lab/controlplane"
	"github.com/topodisk/topodisk/test/lab/process"
)

// Release is the controller of a Helm release: what the chart renders for some values, under a name. Its Deployment's Pods never
// run; programs that are started for one take themselves for it.
type Release struct {
	Account    string // its ServiceAccount, in kube-system
	Kubeconfig string // with that account's permissions
	Pod        string // that programs which are started from now on take themselves for; empty for none

	lab     *Lab
	install *installation
}

// provisionerContainer is the container of the provisioner, topodisk's or Kubernetes' own.
const provisionerContainer = "csi-provisioner"

// newRelease makes what is installed, and a Pod of the Deployment if its programs are to take themselves for it.
func (l *Lab) newRelease(ctx context.Context, install *installation, name string, pod bool) (r *Release, err error) {
	r = &Release{lab: l, install: install, Account: install.deployment.Spec.Template.Spec.ServiceAccountName}
	if err := l.createObjects(ctx, install.objects); err != nil {
		return nil, err
	}
	if r.Kubeconfig, err = l.accountKubeconfig(ctx, r.Account, name, controlplane.LocalAddress); err == nil && pod {
		r.Pod, err = install.createDeployment(ctx, l)
	}
	return r, err
}

// InstallRelease makes the accounts, the Roles and the Deployment of what the chart has rendered for a release called
// topodisk, under another name.
func (l *Lab) InstallRelease(ctx context.Context, path, name string) (*Release, error) {
	install, err := readInstallation(path)
	if err != nil {
		return nil, err
	}
	install.objects = slices.DeleteFunc(install.objects, func(o unstructured.Unstructured) bool {
		return o.GetNamespace() == "" && !strings.HasPrefix(o.GetKind(), "ClusterRole") // what a cluster has once
	})
	for i := range install.objects {
		rename(install.objects[i].Object, "topodisk", name)
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
	return l.newRelease(ctx, install, name, true)
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

// command is a program that runs as a container of the Deployment: with its flags and then args.
func (r *Release) command(name, container, path string, args ...string) (process.Command, error) {
	flags, err := r.install.args(container)
	c := process.Command{Name: name, Path: path, Args: slices.Concat(flags, []string{"--kubeconfig=" + r.Kubeconfig}, args)}
	if r.Pod != "" {
		namespace := r.install.deployment.Namespace
		c.Env = []string{"POD_NAME=" + r.Pod, "NAMESPACE=" + namespace, "POD_NAMESPACE=" + namespace}
	}
	return c, err
}

// Start runs a program as a container of the Deployment: with its flags and then args, and with further environment. It ends
// with the lab.
func (r *Release) Start(container, path string, env, args []string) (*process.Process, error) {
	c, err := r.command(r.install.deployment.Name+"-"+container, container, path, args...)
	if err != nil {
		return nil, err
	}
	c.Env = append(c.Env, env...)
	return r.lab.Start(c)
}

// serve runs one that serves HTTP, and returns when it is alive.
func (r *Release) serve(ctx context.Context, name, container, path string, args ...string) (*process.Process, error) {
	c, err := r.command(name, container, path, args...)
	if err != nil {
		return nil, err
	}
	return r.lab.Serve(ctx, c, "/healthz")
}
