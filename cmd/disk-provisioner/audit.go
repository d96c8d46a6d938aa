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

	csimetrics "github.com/kubernetes-csi/csi-lib-utils/metrics"

	"github.com/topodisk/topodisk/provisioner"
)

// auditCommand is the first argument that asks for an audit.
const auditCommand = "audit"

// What `disk-provisioner audit` ends with.
const (
	auditClean    = 0
	auditFindings = 1
	auditFailed   = 2
)

// mainOfAudit holds disks, PersistentVolumes and journal against each other,
// prints what stands alone, and changes nothing.
func mainOfAudit(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	found, err := audit(ctx, args, os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, errHelp):
		return auditClean
	case err != nil:
		fmt.Fprintf(os.Stderr, "disk-provisioner audit: %v\n", err)
		return auditFailed
	case !found.Clean():
		return auditFindings
	}
	return auditClean
}

func audit(ctx context.Context, args []string, out, warnings io.Writer) (provisioner.Audit, error) {
	cluster, args, err := takeClusterID(args)
	if err != nil {
		return provisioner.Audit{}, err
	}
	o, err := parse(args, warnings)
	if err != nil {
		return provisioner.Audit{}, err
	}
	clients, err := newClients(o, func() error { return nil })
	if err != nil {
		return provisioner.Audit{}, err
	}
	driver, err := provisioner.Connect(ctx, o.csiAddress, o.provisioner, o.config.Timeout, csimetrics.NewCSIMetricsManagerForSidecar(""))
	if err != nil {
		return provisioner.Audit{}, err
	}
	defer func() { _ = driver.Close() }()
	o.config.DriverName, o.config.DriverListsVolumes = driver.Name(), driver.Can().ListVolumes
	found, err := provisioner.RunAudit(ctx, o.config, clients.Main, driver, cluster)
	if err != nil {
		return found, err
	}
	return found, found.Print(out)
}

// takeClusterID takes the one flag out that an audit has beyond the
// provisioner's own.
func takeClusterID(args []string) (cluster string, rest []string, err error) {
	const flag = "--cluster-id"
	for i := 0; i < len(args); i++ {
		name, value, hasValue := strings.Cut(args[i], "=")
		switch {
		case name != flag:
			rest = append(rest, args[i])
			continue
		case !hasValue && i+1 < len(args):
			i++
			value = args[i]
		}
		if value == "" {
			return "", nil, fmt.Errorf("%s is empty; it is what the driver's flag of that name says", flag)
		}
		cluster = value
	}
	return cluster, rest, nil
}
