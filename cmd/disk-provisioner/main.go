// Command disk-provisioner makes PersistentVolumes for claims and deletes what
// claims have let go, through the CSI driver on its unix socket. It takes the
// flags of Kubernetes' csi-provisioner, of today and of v1.6.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	csimetrics "github.com/kubernetes-csi/csi-lib-utils/metrics"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/provisioner"
)

// version is stamped by the linker.
var version = "dev"

func main() {
	if len(os.Args) > 1 && os.Args[1] == auditCommand {
		os.Exit(mainOfAudit(os.Args[2:]))
	}
	o, err := parse(os.Args[1:], os.Stderr)
	switch {
	case errors.Is(err, errHelp):
		return
	case err != nil:
		fmt.Fprintf(os.Stderr, "disk-provisioner: %v\n", err)
		os.Exit(2)
	case o.showVersion:
		fmt.Println("disk-provisioner", version)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, o); err != nil && ctx.Err() == nil {
		klog.ErrorS(err, "disk-provisioner ends")
		klog.Flush()
		os.Exit(1)
	}
	klog.Flush()
}

func run(ctx context.Context, o *options) error {
	clients, err := newClients(o)
	if err != nil {
		return err
	}
	manager := csimetrics.NewCSIMetricsManagerForSidecar("")
	registry := prometheus.NewRegistry()
	manager.WithAdditionalRegistry(registry)
	lease := o.lease()
	server := newServer(o, manager, lease)
	if err := server.start(); err != nil {
		return err
	}
	defer server.stop()

	driver, err := provisioner.Connect(ctx, o.csiAddress, o.provisioner, o.config.Timeout, manager)
	if err != nil {
		return err
	}
	defer func() { _ = driver.Close() }()
	manager.SetDriverName(driver.Name())
	server.setReady(driver.Probe)
	o.config.DriverName, o.config.Identity = driver.Name(), identity(driver.Name())
	can := driver.Can()
	o.config.SupportsTopology = can.Topology && o.topologyGate
	o.config.DriverTellsCapacity, o.config.DriverListsVolumes = can.GetCapacity, can.ListVolumes
	o.config.DriverTellsWriters = can.SingleNodeMultiWriter
	lease.Driver = driver.Name()

	c, err := provisioner.NewController(o.config, provisioner.Clients{Main: clients.main, Events: clients.events, Journal: clients.journal}, driver, registry)
	if err != nil {
		return err
	}
	if err := c.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	klog.InfoS("Ready", "driver", driver.Name(), "topology", o.config.SupportsTopology, "version", version)
	if !o.leaderElection {
		return c.Run(ctx)
	}
	return lease.RunWhileHeld(ctx, clients.lease, c.Run)
}

type clients struct{ main, events, journal, lease kubernetes.Interface }

// newClients makes a client for each purpose, so that none waits for another's rate limit.
func newClients(o *options) (c clients, err error) {
	for _, want := range []struct {
		client *kubernetes.Interface
		qps    float32
		burst  int
	}{{&c.main, o.kubeAPIQPS, o.kubeAPIBurst}, {&c.events, eventQPS, eventBurst}, {&c.journal, journalQPS, journalBurst}, {&c.lease, leaseQPS, leaseBurst}} {
		config, err := o.restConfig()
		if err != nil {
			return c, err
		}
		config.QPS, config.Burst = want.qps, want.burst
		if *want.client, err = kubernetes.NewForConfig(config); err != nil {
			return c, err
		}
	}
	return c, nil
}

// What events, the journal and the lease may send: none grows with the number of
// claims in a way that a claim must wait for.
const (
	eventQPS, eventBurst     = 20, 100
	journalQPS, journalBurst = 100, 200
	leaseQPS, leaseBurst     = 5, 10
)
