package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/cmd/internal/cli"
	"github.com/topodisk/topodisk/diskdriver/nodefacts"
)

// What the facts of nodes may send to the API server: a write for each node,
// once.
const factsQPS, factsBurst = 50, 100

// newNodeFacts returns what keeps the facts of nodes; nil if that isn't wanted,
// or if there is no cluster.
func newNodeFacts(o *options, cloud nodefacts.Cloud) (*nodefacts.Publisher, error) {
	if !o.nodeFacts {
		return nil, nil
	}
	client, without, err := o.optionalClient(func(config *rest.Config) {
		config.QPS, config.Burst = factsQPS, factsBurst
		config.ContentType = "application/vnd.kubernetes.protobuf"
	})
	if err != nil {
		return nil, err
	}
	if client == nil {
		klog.InfoS("No node is told which disks it can attach: this is no Pod with a token for the API server, and there is no --kubeconfig", "reason", without)
		return nil, nil
	}
	return nodefacts.New(nodefacts.Config{Region: o.region, Driver: o.driverName, Namespace: o.namespace()}, client, cloud)
}

func (o *options) restConfig() (*rest.Config, error) {
	if o.kubeconfig == "" {
		return rest.InClusterConfig()
	}
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig=%s: %w", o.kubeconfig, err)
	}
	return config, nil
}

// client returns a client of the API server.
func (o *options) client(tune ...func(*rest.Config)) (*kubernetes.Clientset, error) {
	config, err := o.restConfig()
	if err != nil {
		return nil, err
	}
	for _, change := range tune {
		change(config)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig=%s: %w", o.kubeconfig, err)
	}
	return client, nil
}

// optionalClient returns no client, and why, if there is no cluster: this is no
// Pod with a token, and there is no --kubeconfig.
func (o *options) optionalClient(tune ...func(*rest.Config)) (client *kubernetes.Clientset, without string, err error) {
	client, err = o.client(tune...)
	if errors.Is(err, rest.ErrNotInCluster) || errors.Is(err, os.ErrNotExist) && o.kubeconfig == "" {
		return nil, err.Error(), nil
	}
	return client, "", err
}

// namespace is where the Lease is.
func (o *options) namespace() string { return cmp.Or(o.leaseNamespace, cli.PodNamespace()) }
