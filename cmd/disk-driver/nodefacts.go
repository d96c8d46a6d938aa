package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

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
	config, err := o.restConfig()
	switch {
	case errors.Is(err, rest.ErrNotInCluster), errors.Is(err, os.ErrNotExist) && o.kubeconfig == "":
		klog.InfoS("No node is told which disks it can attach: this is no Pod with a token for the API server, and there is no --kubeconfig", "reason", err.Error())
		return nil, nil
	case err != nil:
		return nil, err
	}
	config.QPS, config.Burst = factsQPS, factsBurst
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig=%s: %w", o.kubeconfig, err)
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

// namespace is where the Lease is.
func (o *options) namespace() string {
	if o.leaseNamespace != "" {
		return o.leaseNamespace
	}
	data, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if namespace := strings.TrimSpace(string(data)); err == nil && namespace != "" {
		return namespace
	}
	return "default"
}
