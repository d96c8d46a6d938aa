package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	csimetrics "github.com/kubernetes-csi/csi-lib-utils/metrics"
	"github.com/spf13/pflag"

	"github.com/topodisk/topodisk/cmd/internal/cli"
	"github.com/topodisk/topodisk/internal/audit"
	"github.com/topodisk/topodisk/internal/sleep"
	"github.com/topodisk/topodisk/provisioner"
	"github.com/topodisk/topodisk/provisioner/claim"
	"github.com/topodisk/topodisk/provisioner/csiconn"
	"github.com/topodisk/topodisk/provisioner/request"
)

// Exit codes of `disk-provisioner audit`.
const (
	auditClean    = 0
	auditFindings = 1
	auditFailed   = 2
)

// auditOptions are the command line of an audit.
type auditOptions struct {
	csiAddress string
	driverName string
	namespace  string
	clusterID  string
	timeout    time.Duration
	confirm    time.Duration
	cluster    cli.Cluster
	log        cli.Log
}

// parseAudit parses the command line, and prints the help to out.
func parseAudit(args []string, out io.Writer) (*auditOptions, error) {
	o := &auditOptions{}
	f := pflag.NewFlagSet("disk-provisioner audit", pflag.ContinueOnError)
	cli.SetUsage(f, out, "disk-provisioner audit compares the driver's disks with PersistentVolumes and the journal, and changes nothing.\nIt ends with 0 if each has its counterpart, with 1 if not, and with 2 if it failed.")
	f.StringVar(&o.csiAddress, "csi-address", "/run/csi/socket", "unix socket of the CSI driver")
	f.StringVar(&o.driverName, "provisioner", "", "name that the driver must have; empty: any")
	f.StringVar(&o.namespace, "leader-election-namespace", "", "namespace of the journal; the Pod's own if empty")
	f.StringVar(&o.clusterID, "cluster-id", "", "ID of the cluster whose disks are compared, as in the driver's flag of that name; empty: the cluster of the PersistentVolumes' disks")
	f.DurationVar(&o.timeout, "timeout", 10*time.Second, "timeout of each call to the CSI driver")
	f.DurationVar(&o.confirm, "confirm-after", audit.Lag, "findings are read again after this time, so that nothing is reported that is being created or deleted")
	o.cluster.AddFlags(f)
	o.log.AddFlags(f)
	if err := cli.Parse(f, args); err != nil {
		return nil, err
	}
	o.namespace = cmp.Or(o.namespace, cli.PodNamespace())
	switch {
	case o.csiAddress == "":
		return nil, errors.New("--csi-address is empty; it is the driver's unix socket, such as /csi/csi.sock")
	case f.Changed("cluster-id") && o.clusterID == "":
		return nil, errors.New("--cluster-id is empty; it is what the driver's flag of that name says")
	case o.timeout <= 0:
		return nil, fmt.Errorf("--timeout=%s; it must be positive", o.timeout)
	case o.confirm < audit.Lag:
		return nil, fmt.Errorf("--confirm-after=%s; it must be %s or more, for reads of ECS may lag by that", o.confirm, audit.Lag)
	}
	return o, o.log.Validate()
}

// runAudit compares disks, PersistentVolumes and journal, prints what has no counterpart, and changes nothing. It says on
// diagnostics why it takes a while.
func runAudit(ctx context.Context, args []string, out, diagnostics io.Writer) (int, error) {
	o, err := parseAudit(args, diagnostics)
	if err != nil {
		return auditFailed, err
	}
	o.log.Start(os.Stderr)
	client, err := o.cluster.Client()
	if err != nil {
		return auditFailed, err
	}
	driver, err := csiconn.Connect(ctx, o.csiAddress, o.driverName, o.timeout, csimetrics.NewCSIMetricsManagerForSidecar(""), csiconn.Always)
	if err != nil {
		return auditFailed, err
	}
	defer func() { _ = driver.Close() }()
	found, err := provisioner.RunAudit(ctx, provisioner.Config{
		Config:    claim.Config{Options: request.Options{DriverName: driver.Name()}, Timeout: o.timeout},
		Namespace: o.namespace, DriverListsVolumes: driver.Can().ListVolumes,
	}, client, driver, o.clusterID, func(ctx context.Context, found int) error {
		_, _ = fmt.Fprintf(diagnostics, "%d found; they are read again in %s, so that nothing is named that is being made or deleted\n", found, o.confirm)
		return sleep.For(ctx, o.confirm)
	})
	if err != nil {
		return auditFailed, err
	}
	if err := found.Print(out, time.Now()); err != nil {
		return auditFailed, err
	}
	if !found.Clean() {
		return auditFindings, nil
	}
	return auditClean, nil
}
