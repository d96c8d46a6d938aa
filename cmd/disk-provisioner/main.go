// Command disk-provisioner provisions PersistentVolumes for claims and deletes released
// ones, through the CSI driver on its unix socket. It accepts the flags of Kubernetes'
// csi-provisioner, current ones and those of v1.6.
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime/debug"

	csimetrics "github.com/kubernetes-csi/csi-lib-utils/metrics"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"

	"github.com/topodisk/topodisk/cmd/internal/cli"
	"github.com/topodisk/topodisk/internal/leader"
	"github.com/topodisk/topodisk/internal/otherdriver"
	"github.com/topodisk/topodisk/provisioner"
	"github.com/topodisk/topodisk/provisioner/capacity"
	"github.com/topodisk/topodisk/provisioner/csiconn"
	"github.com/topodisk/topodisk/provisioner/request"
)

// version is stamped by the linker.
var version = "dev"

// commands are what the program does besides provisioning.
func commands() []cli.Command {
	return []cli.Command{
		{Name: "audit", Summary: "print the disks without a PersistentVolume and the PersistentVolumes without a disk", Run: runAudit},
		{Name: "capacity off", Summary: "undo --enable-capacity where no disk-provisioner will run again", Run: capacityOff},
		{Name: journalList.name, Summary: "print the volumes under way, and those of unknown outcome", Run: journalList.start},
		{Name: journalShow.name, Summary: "print what is known of one of them, by its claim's UID", Run: journalShow.start},
		{Name: journalEnd.name, Summary: "end one whose outcome can't be determined, with a reason", Run: journalEnd.start},
	}
}

func main() { cli.Main("disk-provisioner", start, commands()...) }

// start provisions. An error is in the log also if the program was to end, and does not fail it then.
func start(ctx context.Context, args []string, out, diagnostics io.Writer) (int, error) {
	o, err := parse(args, diagnostics)
	switch {
	case err != nil:
		return 2, err
	case o.showVersion:
		_, err := fmt.Fprintln(out, "disk-provisioner", version)
		return 0, err
	}
	defer klog.Flush()
	if err := run(ctx, o); err != nil {
		klog.ErrorS(err, "disk-provisioner ends")
		if ctx.Err() == nil {
			return 1, nil
		}
	}
	return 0, nil
}

func run(ctx context.Context, o *options) error {
	o.startLog()
	tuneHeap(o.pprof)
	lease, held := o.lease(), func() error { return nil }
	if o.leaderElection {
		held = lease.Held
		o.config.AwaitRenewal = lease.AwaitRenewal
	}
	clients, err := newClients(o, held)
	if err != nil {
		return err
	}
	manager := csimetrics.NewCSIMetricsManagerWithOptions("", csimetrics.WithProcessStartTime(false)) // the registry has it
	registry := cli.NewRegistry(version)
	manager.WithAdditionalRegistry(registry)
	manager.WithAdditionalRegistry(cli.ClientGo)
	server := newServer(o, manager, lease)
	if err := cli.Serve(server.http, "The HTTP endpoint ends"); err != nil {
		return err
	}
	defer func() { _ = server.http.Close() }()

	driver, err := csiconn.Connect(ctx, o.csiAddress, o.provisioner, o.config.Timeout, manager, held)
	if err != nil {
		return err
	}
	defer func() { _ = driver.Close() }()
	manager.SetDriverName(driver.Name())
	server.setDriver(driver.Probe)
	o.config.DriverName, o.config.Identity = driver.Name(), identity(driver.Name())
	can := driver.Can()
	o.config.SupportsTopology = can.Topology && o.topologyGate
	o.config.DriverTellsCapacity, o.config.DriverListsVolumes = can.GetCapacity, can.ListVolumes
	o.config.SingleNodeMultiWriter = can.SingleNodeMultiWriter
	o.config.DriverRestores, o.config.DriverClones, o.config.DriverModifies = can.Snapshots, can.Clone, can.Modify
	o.config.DriverKnowsUse = can.DeleteOnlyUnused
	lease.Name = request.ObjectName(driver.Name())
	o.config.Self = lease.Reference()
	if pod := os.Getenv("POD_NAME"); pod != "" {
		o.config.Self = provisioner.PodReference(cli.PodNamespace(), pod, os.Getenv("POD_UID"))
	}
	if err := findOwner(ctx, o, clients.Metadata); err != nil {
		return err
	}

	others := otherDriver(o, lease, clients.lease, registry)
	o.config.OtherProvisioner = others.Saved
	c, err := provisioner.NewController(o.config, clients.Clients, driver, registry)
	if err != nil {
		return err
	}
	server.setHealthy(c.Healthy)
	server.setRecovered(c.Recovered)
	if err := c.Start(ctx); err != nil {
		return err
	}
	server.setFilled()
	go debug.FreeOSMemory() // the lists that the caches were filled from
	klog.InfoS("Ready", "driver", driver.Name(), "topology", o.config.SupportsTopology, "version", version)
	work := c.Run
	if o.leaderElection {
		work = func(ctx context.Context) error { return lease.RunWhileHeld(ctx, clients.lease, c.Run) }
	}
	return others.Run(ctx, work)
}

// otherDriver returns what looks for another driver of the name, and tells of it by events on this process' object.
func otherDriver(o *options, lease *leader.Lease, client kubernetes.Interface, registry prometheus.Registerer) *otherdriver.Watch {
	config := otherdriver.Config{Client: client, Driver: o.config.DriverName, Lease: lease.Name, Labels: o.csiDriverLabels, Takeover: o.takeover}
	if o.leaderElection {
		config.Namespace = lease.Namespace
	}
	events := record.NewBroadcaster()
	events.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: client.CoreV1().Events("")})
	recorder := events.NewRecorder(scheme.Scheme, v1.EventSource{Component: o.config.DriverName})
	config.Warn = func(reason, message string) { recorder.Event(o.config.Self, v1.EventTypeWarning, reason, message) }
	return otherdriver.New(config, registry)
}

// findOwner sets the owner of the CSIStorageCapacity objects. Outside of a Pod there is none.
func findOwner(ctx context.Context, o *options, objects metadata.Interface) (err error) {
	pod := os.Getenv("POD_NAME")
	if !o.config.Capacity || o.ownerLevel < 0 {
		return nil
	}
	if pod == "" {
		klog.InfoS("CSIStorageCapacity objects have no owner, for the environment has no POD_NAME: they remain when this program is uninstalled")
		return nil
	}
	if o.config.CapacityOwner, err = capacity.Owner(ctx, objects, cli.PodNamespace(), pod, o.ownerLevel); err != nil {
		return fmt.Errorf("the owner of CSIStorageCapacity objects (--capacity-ownerref-level=%d): %w", o.ownerLevel, err)
	}
	return nil
}

type clients struct {
	provisioner.Clients
	lease kubernetes.Interface
}

// newClients returns a client with a rate limit for each purpose. Only events and the Lease
// may be written while held returns an error.
func newClients(o *options, held func() error) (c clients, err error) {
	for _, want := range []struct {
		client *kubernetes.Interface
		qps    float32
		burst  int
		free   bool // not fenced
	}{
		{client: &c.Capacity, qps: capacityQPS, burst: capacityBurst},
		{client: &c.Events, qps: eventQPS, burst: eventBurst, free: true},
		{client: &c.Journal, qps: journalQPS, burst: journalBurst},
		{client: &c.lease, qps: leaseQPS, burst: leaseBurst, free: true},
	} {
		config, err := o.restConfig(want.qps, want.burst)
		if err != nil {
			return c, err
		}
		if !want.free {
			fence(config, held)
		}
		config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(want.qps, want.burst)
		if *want.client, err = kubernetes.NewForConfig(config); err != nil {
			return c, err
		}
		if want.client == &c.Journal {
			if c.JournalMetadata, err = metadata.NewForConfig(config); err != nil {
				return c, err
			}
		}
	}
	return c, c.main(o, held)
}

// main creates the clients that share the limit of --kube-api-qps.
func (c *clients) main(o *options, held func() error) error {
	config, err := o.restConfig(o.kubeAPIQPS, o.kubeAPIBurst)
	if err != nil {
		return err
	}
	fence(config, held)
	limitEach(config)
	if c.Main, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if c.Metadata, err = metadata.NewForConfig(config); err != nil {
		return err
	}
	config = rest.CopyConfig(config)
	config.ContentType = "" // custom resources are JSON
	c.Dynamic, err = dynamic.NewForConfig(config)
	return err
}

func fence(config *rest.Config, held func() error) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return leader.FenceHTTP(held, next) })
}

// limitEach limits reads and writes to config's QPS each, for all clients of config, so that writes don't wait for the reads
// that precede deletions.
func limitEach(config *rest.Config) {
	reads := flowcontrol.NewTokenBucketRateLimiter(config.QPS, config.Burst)
	writes := flowcontrol.NewTokenBucketRateLimiter(config.QPS, config.Burst)
	config.QPS = -1
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &limitedTripper{reads, writes, next} })
}

// limitedTripper delays requests by rate limiters.
type limitedTripper struct {
	reads, writes flowcontrol.RateLimiter
	next          http.RoundTripper
}

// RoundTrip returns an error without sending the request if its context ends while it waits.
func (l *limitedTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	limiter := l.writes
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		limiter = l.reads
	}
	if err := limiter.Wait(r.Context()); err != nil {
		return nil, err
	}
	return l.next.RoundTrip(r)
}

// Rate limits of events, the journal and the Lease. No claim waits for them, however many
// claims there are.
const (
	eventQPS, eventBurst     = 20, 100
	journalQPS, journalBurst = 100, 200
	leaseQPS, leaseBurst     = 5, 10
)
