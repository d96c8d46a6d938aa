package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"github.com/topodisk/topodisk/test/lab/process"
	"github.com/topodisk/topodisk/test/lab/programs"
)

// installed are the kinds of deploy/topodisk.yaml that a lab makes as they are. The containers of Deployment and DaemonSet
// run as processes instead, and a PodDisruptionBudget has nothing to protect here.
var installed = []string{"ServiceAccount", "StorageClass", "CSIDriver", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}

// installation is what users install: deploy/topodisk.yaml of the checkout, or what the chart renders for other values.
type installation struct {
	path       string
	objects    []unstructured.Unstructured
	deployment appsv1.Deployment
	daemonSet  appsv1.DaemonSet
}

// readInstallation reads what the chart renders: deploy/topodisk.yaml, or another such file.
func readInstallation(path string) (*installation, error) {
	in := &installation{path: path}
	objects, err := readObjects(path)
	if err != nil {
		return nil, err
	}
	for _, object := range objects {
		if into := map[string]any{"Deployment": &in.deployment, "DaemonSet": &in.daemonSet}[object.GetKind()]; into != nil {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", path, object.GetKind(), err)
			}
		}
		if object.GetKind() == "CSIDriver" { // as docs/install.md has it patched from Kubernetes 1.34
			if err := unstructured.SetNestedField(object.Object, int64(60), "spec", "nodeAllocatableUpdatePeriodSeconds"); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
		}
		if slices.Contains(installed, object.GetKind()) {
			in.objects = append(in.objects, object)
		}
	}
	if in.deployment.Name == "" || in.daemonSet.Name == "" {
		return nil, fmt.Errorf("%s holds no Deployment, or no DaemonSet", path)
	}
	return in, nil
}

// readObjects reads all objects of a YAML file.
func readObjects(path string) (objects []unstructured.Unstructured, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for documents := yaml.NewYAMLOrJSONDecoder(f, 4<<10); ; {
		var object unstructured.Unstructured
		if err := documents.Decode(&object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// installSnapshotCRDs creates the CRDs of snapshots and returns when they are served.
func (l *Lab) installSnapshotCRDs(ctx context.Context) error {
	files, err := programs.SnapshotKinds(ctx, l.opts.Root)
	if err != nil {
		return err
	}
	args := []string{"create", "--validate=ignore"}
	for _, file := range files {
		args = append(args, "--filename="+file)
	}
	if _, err := l.RunKubectl(ctx, "", "", args...); err != nil {
		return err
	}
	groups := []string{"snapshot.storage.k8s.io/v1", "groupsnapshot.storage.k8s.io/v1"}
	return l.Await(ctx, "snapshots are served", process.StartLimit, func(context.Context) (bool, error) {
		for _, group := range groups {
			served, err := l.Client.Discovery().ServerResourcesForGroupVersion(group)
			if err != nil || len(served.APIResources) < len(files)/len(groups) {
				return false, err
			}
		}
		return true, nil
	})
}

// Dynamic returns a client for kinds that are no part of Kubernetes itself, the administrator's.
func (l *Lab) Dynamic() (dynamic.Interface, error) {
	return dynamic.NewForConfig(l.Plane.Config)
}

// createObjects creates objects of any kind. Fields that an earlier version of Kubernetes doesn't know are no error.
func (l *Lab) createObjects(ctx context.Context, objects []unstructured.Unstructured) error {
	list := unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List"}, Items: objects}
	text, err := list.MarshalJSON()
	if err == nil {
		_, err = l.RunKubectl(ctx, "", string(text), "create", "--validate=ignore", "--filename=-")
	}
	return err
}

// args are the flags that the installation gives to a container of the Deployment; flags appended later override them.
func (in *installation) args(container string) ([]string, error) {
	return in.argsOf(in.deployment.Spec.Template.Spec, container)
}

// nodeArgs are those of the DaemonSet's disk-driver on a node.
func (in *installation) nodeArgs(node string) ([]string, error) {
	args, err := in.argsOf(in.daemonSet.Spec.Template.Spec, DriverProgram)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "$(NODE_NAME)", node)
	}
	return args, err
}

func (in *installation) argsOf(pod corev1.PodSpec, container string) ([]string, error) {
	for _, c := range pod.Containers {
		if c.Name == container {
			return slices.Clone(c.Args), nil
		}
	}
	return nil, fmt.Errorf("%s: there is no container %s", in.path, container)
}

// createDeployment creates the Deployment and returns the name of a Pod of it.
func (in *installation) createDeployment(ctx context.Context, l *Lab) (name string, err error) {
	deployment := in.deployment.DeepCopy()
	deployment.Spec.Template.Spec.NodeSelector = map[string]string{"no-node": "runs-it"}
	if _, err := l.Client.AppsV1().Deployments(deployment.Namespace).Create(ctx, deployment, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	selector := metav1.FormatLabelSelector(deployment.Spec.Selector)
	return name, l.Await(ctx, "Deployment "+deployment.Name+" has a Pod", process.StartLimit, func(ctx context.Context) (bool, error) {
		pods, err := l.Client.CoreV1().Pods(deployment.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil || len(pods.Items) == 0 {
			return false, err
		}
		name = pods.Items[0].Name
		return true, nil
	})
}

// accountKubeconfig writes how a ServiceAccount of kube-system reaches the API server at an address, under a name, so that topodisk
// runs with the permissions that it installs.
func (l *Lab) accountKubeconfig(ctx context.Context, account, name, address string) (string, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(24 * 60 * 60))}}
	answer, err := l.Client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return l.Plane.KubeconfigAt(address, name, answer.Status.Token)
}
