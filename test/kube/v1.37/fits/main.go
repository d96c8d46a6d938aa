// Fits says on which of some nodes Kubernetes' scheduler would find volumes for a Pod. The nodes need not exist: so a
// cluster autoscaler asks whether a node that it might add would help. Claims, classes, the CSIDriver and its
// CSIStorageCapacity objects are those of the API server.
//
//	fits -kubeconfig FILE -namespace NAMESPACE -pod NAME < nodes.json
//
// reads a NodeList and writes a JSON object: for each node's name why the filter of volume binding turns it away, or "".
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// limit is for how long the caches may take to fill.
const limit = time.Minute

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig `FILE`")
	namespace := flag.String("namespace", corev1.NamespaceDefault, "the Pod's `NAMESPACE`")
	pod := flag.String("pod", "", "the Pod's `NAME`")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := run(ctx, *kubeconfig, *namespace, *pod, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fits:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kubeconfig, namespace, name string, in io.Reader, out io.Writer) error {
	var nodes corev1.NodeList
	if err := json.NewDecoder(in).Decode(&nodes); err != nil {
		return fmt.Errorf("read the nodes: %w", err)
	}
	access, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return err
	}
	pod, err := client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	scheduler, err := newScheduler(ctx, client)
	if err != nil {
		return err
	}
	answers := map[string]string{}
	for i := range nodes.Items {
		if answers[nodes.Items[i].Name], err = why(ctx, scheduler, pod, &nodes.Items[i]); err != nil {
			return err
		}
	}
	return json.NewEncoder(out).Encode(answers)
}

// newScheduler returns the scheduler's framework with the plugin of volume binding alone, over full caches.
func newScheduler(ctx context.Context, client kubernetes.Interface) (framework.Framework, error) {
	metrics.Register()
	defaults, err := latest.Default()
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	profile := &config.KubeSchedulerProfile{
		SchedulerName: "fits",
		Plugins: &config.Plugins{
			QueueSort: config.PluginSet{Enabled: []config.Plugin{{Name: names.PrioritySort}}},
			PreFilter: config.PluginSet{Enabled: []config.Plugin{{Name: names.VolumeBinding}}},
			Filter:    config.PluginSet{Enabled: []config.Plugin{{Name: names.VolumeBinding}}},
			Bind:      config.PluginSet{Enabled: []config.Plugin{{Name: names.DefaultBinder}}},
		},
		PluginConfig: defaults.Profiles[0].PluginConfig,
	}
	f, err := runtime.NewFramework(ctx, plugins.NewInTreeRegistry(), profile, runtime.WithClientSet(client), runtime.WithInformerFactory(factory),
		runtime.WithSnapshotSharedLister(cache.NewEmptySnapshot()))
	if err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	for kind, full := range factory.WaitForCacheSync(ctx.Done()) {
		if !full {
			return nil, fmt.Errorf("the cache of %v did not fill in %s", kind, limit)
		}
	}
	return f, nil
}

// why returns the reason for which the Pod can't have its volumes on the node, empty if it can.
func why(ctx context.Context, f framework.Framework, pod *corev1.Pod, node *corev1.Node) (string, error) {
	state := framework.NewCycleState()
	if _, status, _ := f.RunPreFilterPlugins(ctx, state, pod); !status.IsSuccess() {
		return "", fmt.Errorf("look at the Pod's claims: %w", status.AsError())
	}
	info := framework.NewNodeInfo()
	info.SetNode(node)
	status := f.RunFilterPlugins(ctx, state, pod, info)
	if status.Code() == fwk.Error {
		return "", fmt.Errorf("node %s: %w", node.Name, status.AsError())
	}
	return status.Message(), nil
}
