package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"

	"github.com/topodisk/topodisk/provisioner"
)

// capacityCommand is the first argument of `disk-provisioner capacity off`.
const capacityCommand = "capacity"

// driverNameByDefault is the driver's own default.
const driverNameByDefault = "diskplugin.csi.alibabacloud.com"

// capacityOffQPS are requests a second to the API server: a class or two have a few
// objects each.
const capacityOffQPS = 20

// mainOfCapacity has the scheduler look at no capacities any more, in a cluster
// where no provisioner runs that could be told so.
func mainOfCapacity(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	switch err := capacity(ctx, args, os.Stdout, os.Stderr); {
	case errors.Is(err, errHelp):
		return 0
	case err != nil:
		fmt.Fprintf(os.Stderr, "disk-provisioner capacity: %v\n", err)
		return 1
	}
	return 0
}

// capacityOptions are the command line of `disk-provisioner capacity off`.
type capacityOptions struct {
	api               options // of which the API server is used
	driver, namespace string
}

func (o *capacityOptions) flags(out io.Writer) *pflag.FlagSet {
	f := pflag.NewFlagSet("disk-provisioner capacity off", pflag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&o.api.master, "master", "", "URL of the API server; only needed outside of a cluster and without --kubeconfig")
	f.StringVar(&o.api.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig file; only needed outside of a cluster")
	f.StringVar(&o.driver, "driver-name", driverNameByDefault, "name of the CSIDriver whose storageCapacity is set to false")
	f.StringVar(&o.namespace, "namespace", "", "namespace of the CSIStorageCapacity objects that are deleted; all if empty")
	return f
}

func capacity(ctx context.Context, args []string, out, help io.Writer) error {
	o := capacityOptions{}
	flags := o.flags(help)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 || flags.Arg(0) != "off" {
		return fmt.Errorf("arguments %q: allowed is off; on is the flag --enable-capacity of disk-provisioner itself", flags.Args())
	}
	if wrong := validation.IsDNS1123Subdomain(o.driver); len(wrong) > 0 {
		return fmt.Errorf("--driver-name=%s: %s", o.driver, strings.Join(wrong, "; "))
	}
	config, err := o.api.restConfig(capacityOffQPS, capacityOffQPS)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	deleted, err := provisioner.WithdrawCapacities(ctx, client, o.driver, o.namespace)
	if err != nil && apierrors.IsForbidden(err) && o.namespace == "" {
		err = fmt.Errorf("%w (an account with rights in one namespace needs --namespace)", err)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "storageCapacity of CSIDriver %s is false or the CSIDriver is gone; %d CSIStorageCapacity objects were deleted.\n"+
		"A disk-provisioner that runs with --enable-capacity turns it on again.\n", o.driver, deleted)
	return err
}
