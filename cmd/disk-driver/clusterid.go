package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// How often, and for how long at first, the API server is asked who the cluster
// is. Then the process ends, so that somebody notices.
const (
	clusterIDEvery = 2 * time.Second
	clusterIDLimit = 2 * time.Minute
)

// completeClusterID fills in the ID of the cluster if no flag has: the UID of
// the namespace kube-system, which lives as long as the cluster. Nothing is
// guessed: a disk with the wrong ID would be nobody's.
func (o *options) completeClusterID(ctx context.Context) error {
	if o.clusterID != "" {
		return nil
	}
	client, err := o.client()
	if err != nil {
		return fmt.Errorf("--cluster-id is missing, and no API server can be asked for the UID of the namespace %s; for example --cluster-id=c0123456789abcdef: %w", metav1.NamespaceSystem, err)
	}
	o.clusterID, err = kubeSystemUID(ctx, client)
	if err != nil {
		return err
	}
	klog.InfoS("The cluster's ID is the UID of its namespace kube-system", "cluster", o.clusterID)
	return nil
}

// kubeSystemUID asks until there is an answer or time is up.
func kubeSystemUID(ctx context.Context, client kubernetes.Interface) (string, error) {
	ctx, stop := context.WithTimeout(ctx, clusterIDLimit)
	defer stop()
	said := ""
	for {
		namespace, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		if err == nil && namespace.UID != "" {
			return string(namespace.UID), nil
		}
		if err == nil {
			err = fmt.Errorf("the namespace %s has no UID", metav1.NamespaceSystem)
		}
		if ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			klog.ErrorS(err, "The UID of the namespace kube-system is not known yet; --cluster-id says which ID to take instead")
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("--cluster-id is missing, and the API server did not tell the UID of the namespace %s: %w", metav1.NamespaceSystem, err)
		case <-time.After(clusterIDEvery):
		}
	}
}
