package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"

	"github.com/topodisk/topodisk/cmd/internal/cli"
	"github.com/topodisk/topodisk/provisioner/capacity"
)

// driverNameByDefault is the default of the driver's flag.
const driverNameByDefault = "diskplugin.csi.alibabacloud.com"

// capacityOffOptions are the command line of `disk-provisioner capacity off`.
type capacityOffOptions struct {
	driver, namespace string
	cluster           cli.Cluster
	log               cli.Log
}

// parseCapacityOff parses the command line, and prints the help to out.
func parseCapacityOff(args []string, out io.Writer) (*capacityOffOptions, error) {
	o := &capacityOffOptions{}
	f := pflag.NewFlagSet("disk-provisioner capacity off", pflag.ContinueOnError)
	cli.SetUsage(f, out, "disk-provisioner capacity off undoes --enable-capacity where no disk-provisioner runs that could: it sets storageCapacity of\n"+
		"the CSIDriver to false and deletes the CSIStorageCapacity objects that a disk-provisioner has written. It may be run again.")
	f.StringVar(&o.driver, "driver-name", driverNameByDefault, "name of the CSIDriver")
	f.StringVar(&o.namespace, "namespace", "", "namespace of the CSIStorageCapacity objects; empty: all namespaces, which the account must be allowed to list")
	o.cluster.AddFlags(f)
	o.log.AddFlags(f)
	if err := cli.Parse(f, args); err != nil {
		return nil, err
	}
	if o.driver == "" {
		return nil, errors.New("--driver-name is empty; it is the driver's flag of that name, such as " + driverNameByDefault)
	}
	return o, o.log.Validate()
}

// capacityOff makes the scheduler ignore capacities in a cluster where no provisioner runs any more.
func capacityOff(ctx context.Context, args []string, out, help io.Writer) (int, error) {
	o, err := parseCapacityOff(args, help)
	if err != nil {
		return 1, err
	}
	o.log.Start(os.Stderr)
	client, err := o.cluster.Client()
	if err != nil {
		return 1, err
	}
	deleted, err := capacity.Withdraw(ctx, client, o.driver, o.namespace)
	if err != nil {
		return 1, err
	}
	_, err = fmt.Fprintf(out, "CSIDriver %s has storageCapacity false, or is gone; %d CSIStorageCapacity objects were deleted.\n"+
		"A disk-provisioner that runs with --enable-capacity turns it on again.\n", o.driver, deleted)
	return 0, err
}
