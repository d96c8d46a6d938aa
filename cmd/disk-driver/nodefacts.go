package main

import (
	"cmp"
	"errors"
	"os"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/cmd/internal/cli"
	"github.com/topodisk/topodisk/diskdriver"
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
	return nodefacts.New(nodefacts.Config{Region: o.region, Driver: o.driverName, LabelsOf: diskdriver.DefaultName, Namespace: o.namespace()}, client, cloud)
}

// optionalClient returns no client, and why, if there is no cluster: this is no
// Pod with a token, and there is no --kubeconfig.
func (o *options) optionalClient(tune ...func(*rest.Config)) (client *kubernetes.Clientset, without string, err error) {
	client, err = o.cluster.Client(tune...)
	if errors.Is(err, rest.ErrNotInCluster) || errors.Is(err, os.ErrNotExist) && o.cluster.Kubeconfig == "" {
		return nil, err.Error(), nil
	}
	return client, "", err
}

// namespace is where the Lease is.
func (o *options) namespace() string { return cmp.Or(o.leaseNamespace, cli.PodNamespace()) }
