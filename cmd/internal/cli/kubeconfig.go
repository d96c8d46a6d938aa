package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Cluster is the flags that name the API server.
type Cluster struct {
	Master, Kubeconfig string

	fromEnvironment bool // $KUBECONFIG is the default of --kubeconfig
}

// AddFlags adds --kubeconfig, which is $KUBECONFIG if it isn't set, and --master.
func (c *Cluster) AddFlags(flags *pflag.FlagSet) {
	c.fromEnvironment = true
	flags.StringVar(&c.Kubeconfig, "kubeconfig", os.Getenv(clientcmd.RecommendedConfigPathEnvVar), "kubeconfig file; only needed outside of a cluster; default: $KUBECONFIG")
	flags.StringVar(&c.Master, "master", "", "URL of the API server; only needed outside of a cluster and without --kubeconfig")
}

// RESTConfig returns how the API server is reached: as the flags say, else as
// Pods do. Its error names the flag.
func (c *Cluster) RESTConfig() (*rest.Config, error) {
	if c.Kubeconfig == "" && c.Master == "" {
		config, err := rest.InClusterConfig()
		if err != nil && c.fromEnvironment {
			return nil, fmt.Errorf("no API server: this is not a Pod (%w); name one with --kubeconfig=FILE or $KUBECONFIG", err)
		}
		return config, err
	}
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: c.Kubeconfig}
	if files := filepath.SplitList(c.Kubeconfig); len(files) > 1 { // $KUBECONFIG may name several
		rules = &clientcmd.ClientConfigLoadingRules{Precedence: files}
	}
	overrides := &clientcmd.ConfigOverrides{}
	overrides.ClusterInfo.Server = c.Master
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig=%s: %w", c.Kubeconfig, err)
	}
	return config, nil
}

// Client returns a client of the API server. Its error names the flag.
func (c *Cluster) Client(tune ...func(*rest.Config)) (*kubernetes.Clientset, error) {
	config, err := c.RESTConfig()
	if err != nil {
		return nil, err
	}
	for _, change := range tune {
		change(config)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig=%s: %w", c.Kubeconfig, err)
	}
	return client, nil
}

// PodNamespace returns the namespace of the Pod that this process runs in.
func PodNamespace() string {
	if namespace := os.Getenv("POD_NAMESPACE"); namespace != "" {
		return namespace
	}
	if data, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace"); err == nil {
		if namespace := strings.TrimSpace(string(data)); namespace != "" {
			return namespace
		}
	}
	return "default"
}
