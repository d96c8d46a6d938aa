package lab

import (
	"context"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
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
	if b.Kubeconfig, err = l.plane.kubeconfig(name, token); err != nil {
		return nil, err
	}
	b.pod, err = install.makePod(ctx, l)
	return b, err
}

// rename puts another release's name in the place of one, wherever it is a whole value or the beginning of a name.
func rename(value any, from, to string) any {
	switch v := value.(type) {
	case string:
		if v == from || strings.HasPrefix(v, from+"-") {
			return to + strings.TrimPrefix(v, from)
		}
	case map[string]any:
		for key := range v {
			v[key] = rename(v[key], from, to)
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
func (b *Beside) Start(container, path string, env, args []string) (*Process, error) {
	flags, err := b.install.args(container)
	if err != nil {
		return nil, err
	}
	namespace := b.install.deployment.Namespace
	return b.lab.processes.start(command{
		name: b.install.deployment.Name + "-" + container, path: path, args: slices.Concat(flags, []string{"--kubeconfig=" + b.Kubeconfig}, args),
		env: append([]string{"POD_NAME=" + b.pod, "NAMESPACE=" + namespace, "POD_NAMESPACE=" + namespace}, env...),
	})
}
