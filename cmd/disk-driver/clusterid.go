package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/internal/sleep"
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
	client, err := o.cluster.Client()
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
func kubeSystemUID(ctx context.Context, client kubernetes.Interface) (uid string, err error) {
	ctx, stop := context.WithTimeout(ctx, clusterIDLimit)
	defer stop()
	const unknown = "The UID of the namespace kube-system is not known yet; --cluster-id says which ID to take instead"
	err = retry(ctx, clusterIDEvery, unknown, func() error {
		namespace, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if uid = string(namespace.UID); uid == "" {
			return fmt.Errorf("the namespace %s has no UID", metav1.NamespaceSystem)
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("--cluster-id is missing, and the API server did not tell the UID of the namespace %s: %w", metav1.NamespaceSystem, err)
	}
	return uid, nil
}

// retry asks again after each interval until there is no error, or returns the last one when the context ends. Each new error is
// logged once.
func retry(ctx context.Context, every time.Duration, says string, ask func() error) error {
	said := ""
	for {
		err := ask()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil && err.Error() != said {
			said = err.Error()
			klog.ErrorS(err, says)
		}
		if sleep.For(ctx, every) != nil {
			return err
		}
	}
}
