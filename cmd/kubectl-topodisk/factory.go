package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/topodisk/topodisk/internal/escape"
)

// defaultDriver is diskdriver.DefaultName.
const defaultDriver = "diskplugin.csi.alibabacloud.com"

// factory hands the commands what they share: the streams, which escape what they are given, and clients of the cluster that kubectl's
// flags name.
type factory struct {
	genericiooptions.IOStreams
	screen *screen // what Out writes to
	config *genericclioptions.ConfigFlags
}

func newFactory(streams genericiooptions.IOStreams) *factory {
	screen := newScreen(streams.Out)
	streams.Out, streams.ErrOut = screen, escape.NewWriter(streams.ErrOut)
	config := genericclioptions.NewConfigFlags(true).WithWarningPrinter(streams)
	config.CacheDir = nil // nothing is discovered, so there is nothing to cache
	return &factory{IOStreams: streams, screen: screen, config: config}
}

// restConfig returns how the cluster is reached. Its error names the kubeconfig's mistake.
func (f *factory) restConfig() (*rest.Config, error) {
	config, err := f.config.ToRESTConfig()
	var file *fs.PathError
	if errors.As(err, &file) {
		return nil, fmt.Errorf("the kubeconfig that --kubeconfig or $KUBECONFIG names can't be read: %w", err)
	}
	if err != nil {
		return nil, err
	}
	config.UserAgent = fmt.Sprintf("kubectl-topodisk/%s", version)
	return config, nil
}

// clients returns clients of the cluster that kubectl's flags name.
func (f *factory) clients() (kubernetes.Interface, dynamic.Interface, error) {
	config, err := f.restConfig()
	if err != nil {
		return nil, nil, err
	}
	config.QPS, config.Burst = 50, 300 // as kubectl; audit's journal alone takes 32 reads
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	objects, err := dynamic.NewForConfig(config)
	return client, objects, err
}

// namespace returns that of --namespace, else the context's.
func (f *factory) namespace() (string, error) {
	namespace, _, err := f.config.ToRawKubeConfigLoader().Namespace()
	return namespace, err
}

// addDriverFlag adds --driver-name to a command.
func addDriverFlag(cmd *cobra.Command, driver *string) {
	*driver = defaultDriver
	cmd.Flags().Var((*driverName)(driver), "driver-name", "name of the CSI driver, as disk-driver's flag of that name")
}

// driverName is the value of --driver-name.
type driverName string

func (d *driverName) String() string { return string(*d) }
func (d *driverName) Type() string   { return "string" }

// Set refuses no name: nothing would be found of it.
func (d *driverName) Set(name string) error {
	if name == "" {
		return fmt.Errorf("it is empty; allowed is the name of a CSI driver, such as %s", defaultDriver)
	}
	*d = driverName(name)
	return nil
}
